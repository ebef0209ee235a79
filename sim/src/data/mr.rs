//! Memory regions.

use std::ops::Range;

use cmid_proto::Errno;

use crate::data::memory::MrKey;
use crate::fabric::Fabric;

bitflags::bitflags! {
    /// What may be done with a region (`enum ibv_access_flags`). Local reading always may.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Receives and reads may write into it.
        const LOCAL_WRITE = 1;
        /// Peers may write into it; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// Peers may read it.
        const REMOTE_READ = 4;
    }
}

/// A registered buffer. Its bytes are read and written by copies only, since a peer may write at any time. Dropping it
/// ends the registration.
#[derive(Debug)]
pub struct Mr {
    pub(crate) fabric: Fabric,
    pub(crate) key: MrKey,
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl Mr {
    /// The address that a peer names it by.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an empty buffer cannot be registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.key.0
    }

    /// The key that a peer names it by; the same as the local one, as with rxe.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key.0
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let range = self.range(offset, into.len())?;
        self.fabric.with(|world| {
            into.copy_from_slice(world.memory.local(self.key, range)?);
            Ok(())
        })
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let range = self.range(offset, from.len())?;
        self.fabric.with(|world| {
            world.memory.local_mut(self.key, range)?.copy_from_slice(from);
            Ok(())
        })
    }

    /// Ends the registration and gives the buffer back.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.fabric.with(|world| world.memory.deregister(self.key)).unwrap_or_default()
    }

    fn range(&self, offset: usize, len: usize) -> Result<Range<usize>, Errno> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len).ok_or(Errno::EINVAL)?;
        Ok(offset..end)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.fabric.with(|world| world.memory.deregister(self.key));
    }
}
