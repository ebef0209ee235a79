//! Registered memory.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use bitflags::bitflags;
use cmid_proto::Errno;

use crate::data::pd::PdInner;
use crate::errno;
use crate::ffi::{self, ibv_access_flags, ibv_mr, ibv_sge};

bitflags! {
    /// What may be done to registered memory, besides being read by its own side (ibv_reg_mr(3)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Receives and RDMA reads of this side may write to it.
        const LOCAL_WRITE = 1;
        /// The peer may write to it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_WRITE = 2;
        /// The peer may read it.
        const REMOTE_READ = 4;
    }
}

const _: () = assert!(Access::LOCAL_WRITE.bits() == ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
const _: () = assert!(Access::REMOTE_WRITE.bits() == ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0);
const _: () = assert!(Access::REMOTE_READ.bits() == ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);

/// A buffer that the device can reach.
///
/// # Why this is memory-safe, although work requests outlive the calls that post them
///
/// A device reaches memory through a registration, named by a key, and only within its range and rights.
///
/// 1. *Nothing else is there.* What is registered is the heap memory of a `Vec` that this object took. No reference into
///    it exists or is ever handed out: [`Mr::read`] and [`Mr::write`] copy through raw pointers. So it does not matter
///    that the device writes at any time: that can change which bytes a copy has, and every byte is a valid `u8`.
/// 2. *It is not freed too early.* The memory is freed, or given back, only after `ibv_dereg_mr` succeeded. The kernel then
///    has withdrawn the key and the pinned pages from the device. A work request that is still posted, or that a
///    peer sends, and that names the key, fails with an error completion.
/// 3. *It may be freed too late.* If `ibv_dereg_mr` fails (the device has been unplugged, for one), the memory is leaked on
///    purpose.
/// 4. *A key that is used again is harmless.* Should a stale work request name a key that the device has given to another
///    registration, it reaches memory that lives in another `Mr`, where 1 holds as well.
///
/// The bytes that [`Mr::read`] sees while the device writes to the same place are unspecified: a mix of old and new.
/// Wait for the completion first, as in C.
///
/// It is `Send` and `Sync`: `read` only copies out, and `write`, the one thing by which this program changes the bytes,
/// takes `&mut self`. A process that forks should not touch it in the child; `ibv_fork_init` is not called.
pub struct Mr {
    raw: NonNull<ibv_mr>,
    buffer: NonNull<u8>,
    len: usize,
    capacity: usize,
    // Dropped after the registration.
    pd: Arc<PdInner>,
}

// SAFETY: the object owns its buffer and its registration; libibverbs ties neither to a thread.
unsafe impl Send for Mr {}
// SAFETY: through `&Mr` this program only reads the memory and the fields of ibv_mr, which do not change.
unsafe impl Sync for Mr {}

impl Mr {
    pub(crate) fn register(pd: Arc<PdInner>, buffer: Vec<u8>, access: Access) -> Result<Self, Errno> {
        if buffer.is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut buffer = ManuallyDrop::new(buffer);
        let (start, len, capacity) = (buffer.as_mut_ptr(), buffer.len(), buffer.capacity());
        let access = access & Access::all();
        // SAFETY: the PD is open and the memory is ours. Not `ibv_reg_mr`, for the reason in ffi.rs.
        let raw = unsafe {
            ffi::ibv_reg_mr_iova2(pd.as_ptr(), start.cast(), len, start.expose_provenance() as u64, access.bits())
        };
        let (Some(raw), Some(start)) = (NonNull::new(raw), NonNull::new(start)) else {
            let errno = errno::last();
            drop(ManuallyDrop::into_inner(buffer));
            return Err(errno);
        };
        Ok(Mr { raw, buffer: start, len, capacity, pd })
    }

    /// The address by which a peer names its first byte.
    #[must_use]
    #[inline]
    pub fn addr(&self) -> u64 {
        self.buffer.as_ptr().addr() as u64
    }

    /// Its length in bytes.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The key for work requests of this side.
    #[must_use]
    #[inline]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// The key that a peer needs for its RDMA reads and writes.
    #[must_use]
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `EINVAL` if that is not all inside.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        self.check(offset, into.len())?;
        // SAFETY: the range is inside the buffer (just checked), which is alive and initialised. `into` does not overlap it:
        // no reference into the buffer exists. Nobody but the device writes to it now (`write` takes `&mut self`), and
        // whatever the device leaves there is a u8.
        unsafe { ptr::copy_nonoverlapping(self.buffer.as_ptr().add(offset), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// `EINVAL` if that is not all inside.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        self.check(offset, from.len())?;
        // SAFETY: as in `read`; and with `&mut self` no other thread of this program reads the memory now.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.buffer.as_ptr().add(offset), from.len()) };
        Ok(())
    }

    /// Deregisters the memory and gives the buffer back. Work requests that still name it will fail.
    ///
    /// # Errors
    /// What ibv_dereg_mr(3) answers, with the registration, which lives on: it can be tried again. `EINVAL` for one with
    /// a memory window, `EIO` on a device that is gone.
    pub fn into_buffer(self) -> Result<Vec<u8>, (Mr, Errno)> {
        let mut this = ManuallyDrop::new(self);
        if let Err(errno) = this.deregister() {
            return Err((ManuallyDrop::into_inner(this), errno));
        }
        // SAFETY: `this` is never dropped, so each of the two is taken out of it once: the PD, to drop it, and the buffer,
        // whose parts are those of the Vec that was registered, and which the device cannot reach any more.
        let buffer = unsafe {
            drop(ptr::read(&raw const this.pd));
            Vec::from_raw_parts(this.buffer.as_ptr(), this.len, this.capacity)
        };
        Ok(buffer)
    }

    /// The scatter element for a part of it. An empty one makes a work request without data.
    #[inline]
    pub(crate) fn sge(&self, range: Range<usize>) -> Result<ibv_sge, Errno> {
        let len = range.end.wrapping_sub(range.start);
        if range.start > range.end || range.end > self.len || len > u32::MAX as usize {
            return Err(Errno::EINVAL);
        }
        Ok(ibv_sge { addr: self.addr() + range.start as u64, length: len as u32, lkey: self.lkey() })
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<(), Errno> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            Some(_) | None => Err(Errno::EINVAL),
        }
    }

    /// After a success the registration must not be used again.
    fn deregister(&mut self) -> Result<(), Errno> {
        // SAFETY: made by ibv_reg_mr_iova2. After a success both callers end the life of `self` without using it.
        errno::of_ibv(unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.deregister().is_ok() {
            // SAFETY: the parts are those of the Vec that was registered, the device cannot reach it any more, and
            // `self` ends here.
            drop(unsafe { Vec::from_raw_parts(self.buffer.as_ptr(), self.len, self.capacity) });
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr").field("len", &self.len).field("rkey", &self.rkey()).finish_non_exhaustive()
    }
}
