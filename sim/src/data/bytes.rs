//! Registered memory, read and written by the program. All of it goes through the fabric's lock, so each call is one step.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use cmid_proto::Errno;
use cmid_proto::memory::{Flag, Traffic};

use crate::data::mr::{Mr, traffic};
use crate::data::space::Stretch;
use crate::fabric::Fabric;

impl Mr {
    /// Copies bytes out, from `offset` on.
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

    /// Copies bytes in, from `offset` on.
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

    /// Loads a number that a peer or the device writes, as an atomic.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, or if its address ([`Mr::addr`] and the offset) is not a multiple of its length.
    pub fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| F::from_slice(world.memory.space.bytes(stretch)?)).ok_or(Errno::EINVAL)
    }

    /// Stores a number that a peer reads, as an atomic.
    ///
    /// # Errors
    /// As [`Mr::load_acquire`].
    pub fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| number.copy_to(world.memory.space.bytes_mut(stretch)?)).ok_or(Errno::EINVAL)
    }

    /// The memory, to be read, while nothing but this program can write to it. As long as the slice is there, the region is
    /// borrowed, and cannot be posted. In the simulator it is a copy.
    ///
    /// # Errors
    /// `EBUSY` while work in flight names it; `EACCES` if peers may write to it, themselves or by a window: with
    /// [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE) or [`Access::REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC), or with both
    /// [`Access::MW_BIND`](crate::Access::MW_BIND) and [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE); `EINVAL` if it is unusable.
    /// Then there is [`Mr::view`].
    pub fn slice(&mut self) -> Result<Slice<'_>, Errno> {
        Ok(Slice { bytes: self.own_bytes()?, region: PhantomData })
    }

    /// As [`Mr::slice`], to be written to. In the simulator peers see what is written when the slice is dropped, and nothing of one
    /// that is forgotten.
    ///
    /// # Errors
    /// As [`Mr::slice`].
    pub fn slice_mut(&mut self) -> Result<SliceMut<'_>, Errno> {
        let (fabric, whole) = (self.fabric.clone(), self.part(0, self.len())?);
        Ok(SliceMut { fabric, whole, bytes: self.own_bytes()?, region: PhantomData })
    }

    /// The memory itself, byte by byte or word by word, whatever is in flight and whoever writes.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View(self)
    }

    /// Its bytes, if nothing but this program writes to it.
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

/// The bytes of a region that nothing else can write to: see [`Mr::slice`].
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

/// The bytes of a region that nothing else can write to, to be written to: see [`Mr::slice_mut`].
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

/// Registered memory as atomics, to be read where it is: see [`Mr::view`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a Mr);

impl View<'_> {
    /// How many bytes it has.
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

    /// Eight bytes in the order of this machine; `None` if they are not all inside, or not aligned.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u64> {
        self.0.load_acquire(offset).ok()
    }
}
