//! Access to registered memory by the program. Each access takes the fabric's lock, so each call is atomic.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use cmid_proto::Errno;
use cmid_proto::datapath::MemoryRegion;
use cmid_proto::memory::{Access, Traffic};

use crate::data::mr::{Mr, bound, traffic};
use crate::data::space::{Lent, Stretch};
use crate::fabric::Fabric;

impl Mr {
    pub(super) fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, from.len())?;
        self.fabric.with(|world| {
            world.memory.space.bytes_mut(stretch).ok_or(Errno::EINVAL)?.copy_from_slice(from);
            Ok(())
        })
    }

    /// Returns its bytes, if only this program writes to it, and no window with such rights may be bound to it.
    pub(super) fn own_bytes(&self, conflicts: fn(Access) -> bool) -> Result<Vec<u8>, Errno> {
        {
            let (machine, shared) = (self.machine(), self.fabric.shared());
            if machine.access().ok_or(Errno::EINVAL)?.lets_peers_write() || machine.is_exposed() {
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

    pub(super) fn aligned(&self, offset: usize, len: usize) -> Result<Stretch, Errno> {
        self.part(offset, len).ok().filter(|part| part.addr % len as u64 == 0).ok_or(Errno::EINVAL)
    }
}

/// A read-only slice of a region.
#[derive(Debug)]
pub struct Slice<'a> {
    pub(super) bytes: Vec<u8>,
    pub(super) region: PhantomData<&'a mut Mr>,
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
    pub(super) fabric: Fabric,
    pub(super) whole: Stretch,
    pub(super) bytes: Vec<u8>,
    pub(super) region: PhantomData<&'a mut Mr>,
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
