//! Access to registered memory by the program. Each access takes the fabric's lock, so each call is atomic.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use cmid_proto::Errno;
use cmid_proto::datapath::{Flag, MemoryRegion};
use cmid_proto::memory::{Access, Traffic};

use crate::data::mr::{Mr, bound, traffic};
use crate::data::space::{Lent, Stretch};
use crate::fabric::Fabric;

impl Mr {
    pub(super) fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, into.len())?;
        self.fabric.with(|world| {
            into.copy_from_slice(world.memory.space.bytes(stretch).ok_or(Errno::EINVAL)?);
            Ok(())
        })
    }

    pub(super) fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, from.len())?;
        self.fabric.with(|world| {
            world.memory.space.bytes_mut(stretch).ok_or(Errno::EINVAL)?.copy_from_slice(from);
            Ok(())
        })
    }

    pub(super) fn load_number<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| F::from_slice(world.memory.space.bytes(stretch)?)).ok_or(Errno::EINVAL)
    }

    pub(super) fn store_number<F: Flag>(&self, offset: usize, number: F) -> Result<(), Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| number.copy_to(world.memory.space.bytes_mut(stretch)?)).ok_or(Errno::EINVAL)
    }

    pub(super) fn borrow_bytes(&mut self) -> Result<Slice<'_>, Errno> {
        let bytes = self.own_bytes(Access::lets_peers_write)?;
        Ok(Slice { bytes, region: PhantomData })
    }

    pub(super) fn borrow_bytes_mut(&mut self) -> Result<SliceMut<'_>, Errno> {
        let (fabric, whole) = (self.fabric.clone(), self.part(0, self.len())?);
        Ok(SliceMut { fabric, whole, bytes: self.own_bytes(|_| true)?, region: PhantomData })
    }

    /// Returns its bytes, if only this program writes to it, and no window with such rights may be bound to it.
    fn own_bytes(&self, conflicts: fn(Access) -> bool) -> Result<Vec<u8>, Errno> {
        {
            let (machine, shared) = (self.machine(), self.fabric.shared());
            if machine.access().ok_or(Errno::EINVAL)?.lets_peers_write() {
                return Err(Errno::EACCES);
            }
            if machine.buffer().is_some_and(Lent::is_shared) {
                return Err(Errno::EBUSY);
            }
            if traffic(&machine, shared) == Traffic::InFlight || bound(&machine, shared).is_some_and(conflicts) {
                return Err(Errno::EBUSY);
            }
        }
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    fn aligned(&self, offset: usize, len: usize) -> Result<Stretch, Errno> {
        self.part(offset, len).ok().filter(|part| part.addr % len as u64 == 0).ok_or(Errno::EINVAL)
    }
}

/// A read-only slice of a region.
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

/// A writable slice of a region.
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
