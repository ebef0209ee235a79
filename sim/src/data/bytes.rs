//! Access to registered memory by the program. Each access takes the fabric's lock, so each call is atomic.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use cmid_proto::Errno;
use cmid_proto::memory::{Flag, Traffic};

use crate::data::mr::{Mr, traffic};
use crate::data::space::Stretch;
use crate::fabric::Fabric;

impl Mr {
    /// Copies bytes from the region, starting at `offset`.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, into.len())?;
        self.fabric.with(|world| {
            into.copy_from_slice(world.memory.space.bytes(stretch).ok_or(Errno::EINVAL)?);
            Ok(())
        })
    }

    /// Copies bytes to the region, starting at `offset`.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, from.len())?;
        self.fabric.with(|world| {
            world.memory.space.bytes_mut(stretch).ok_or(Errno::EINVAL)?.copy_from_slice(from);
            Ok(())
        })
    }

    /// Loads an integer that a peer or the device writes, atomically.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, or if its address ([`Mr::addr`] and the offset) is not a multiple of its length.
    pub fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| F::from_slice(world.memory.space.bytes(stretch)?)).ok_or(Errno::EINVAL)
    }

    /// Stores an integer that a peer reads, atomically.
    ///
    /// # Errors
    /// As [`Mr::load_acquire`].
    pub fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| number.copy_to(world.memory.space.bytes_mut(stretch)?)).ok_or(Errno::EINVAL)
    }

    /// Borrows the memory for reading, if only this program can write to it. The slice borrows the region, so the
    /// region cannot be posted meanwhile. In the simulator the slice is a copy.
    ///
    /// # Errors
    /// `EBUSY` while a work request in flight uses it. `EACCES` if peers may write to it, directly or through a
    /// window: with [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE) or
    /// [`Access::REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC), or with both
    /// [`Access::MW_BIND`](crate::Access::MW_BIND) and [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE); use
    /// [`Mr::view`] then. `EINVAL` if it is unusable.
    pub fn slice(&mut self) -> Result<Slice<'_>, Errno> {
        Ok(Slice { bytes: self.own_bytes()?, region: PhantomData })
    }

    /// As [`Mr::slice`], for writing. In the simulator the bytes become visible to peers when the slice is dropped;
    /// those of a forgotten slice are lost.
    ///
    /// # Errors
    /// As [`Mr::slice`].
    pub fn slice_mut(&mut self) -> Result<SliceMut<'_>, Errno> {
        let (fabric, whole) = (self.fabric.clone(), self.part(0, self.len())?);
        Ok(SliceMut { fabric, whole, bytes: self.own_bytes()?, region: PhantomData })
    }

    /// Views the memory in place, byte by byte or word by word. Concurrent writes are allowed.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View(self)
    }

    /// Its bytes, if only this program writes to it.
    fn own_bytes(&self) -> Result<Vec<u8>, Errno> {
        let quiet = {
            let machine = self.machine();
            if machine.access().ok_or(Errno::EINVAL)?.lets_peers_write() {
                return Err(Errno::EACCES);
            }
            traffic(&machine, self.fabric.shared())
        };
        if quiet == Traffic::InFlight {
            return Err(Errno::EBUSY);
        }
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    fn aligned(&self, offset: usize, len: usize) -> Result<Stretch, Errno> {
        self.part(offset, len).ok().filter(|part| part.addr.is_multiple_of(len as u64)).ok_or(Errno::EINVAL)
    }
}

/// A read-only slice of a region; see [`Mr::slice`].
#[derive(Debug)]
pub struct Slice<'a> {
    bytes: Vec<u8>,
    region: PhantomData<&'a mut Mr>,
}

impl Deref for Slice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A writable slice of a region; see [`Mr::slice_mut`].
#[derive(Debug)]
pub struct SliceMut<'a> {
    fabric: Fabric,
    whole: Stretch,
    bytes: Vec<u8>,
    region: PhantomData<&'a mut Mr>,
}

impl Deref for SliceMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for SliceMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for SliceMut<'_> {
    fn drop(&mut self) {
        let (whole, bytes) = (self.whole, &self.bytes);
        self.fabric.with(|world| {
            if let Some(memory) = world.memory.space.bytes_mut(whole) {
                memory.copy_from_slice(bytes);
            }
        });
    }
}

/// Registered memory as atomics, in place; see [`Mr::view`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a Mr);

impl View<'_> {
    /// The length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One byte; `None` beyond the end.
    #[must_use]
    pub fn byte(&self, offset: usize) -> Option<u8> {
        let mut byte = [0];
        self.0.read(offset, &mut byte).ok()?;
        Some(byte[0])
    }

    /// Eight bytes in native byte order; `None` if they are not all inside, or not aligned.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u64> {
        self.0.load_acquire(offset).ok()
    }
}
