//! Reads and writes of registered memory by this program.

use core::slice;

use cmid_proto::Errno;
use cmid_proto::datapath::Flag;
use cmid_proto::memory::{Access, Traffic};
use parking_lot::RwLock;

use crate::data::buffer::{Pinned, SharedBuffer};
use crate::data::{Mr, words};

impl Mr {
    pub(super) fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let from = self.inside(offset, into.len())?;
        let _access = self.lock().map(RwLock::read);
        if self.writable {
            // SAFETY: the range is inside the memory (just checked), which is alive, initialised and writable. `into`
            // does not overlap it: a mutable reference into the memory, as of `slice_mut`, borrows `self` by `&mut`. So
            // does each store of this program through `self`. One through another region of the same memory is ordered by
            // the lock.
            unsafe { words::load(from, into) };
        } else {
            // SAFETY: the range is inside the memory (just checked), which is alive and initialised, and `into` does
            // not overlap it. Nothing writes to this memory: cmid grants no right to write, and the caller of
            // `from_raw_read_only` guarantees it for the rest of the program.
            unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        }
        Ok(())
    }

    pub(super) fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let to = self.to_write(offset, from.len())?;
        let _access = self.lock().map(RwLock::write);
        // SAFETY: as in `copy_out`, and with `&mut self` and the lock nothing else in this program accesses the memory now.
        unsafe { words::store(to, from) };
        Ok(())
    }

    /// Loads a number by one relaxed load.
    pub(super) fn load_number<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.aligned(self.inside(offset, F::LEN)?, F::LEN)?;
        let mut bytes = [0; size_of::<u64>()];
        let number = bytes.get_mut(..F::LEN).ok_or(Errno::EINVAL)?;
        self.copy_out(offset, number)?;
        F::from_slice(number).ok_or(Errno::EINVAL)
    }

    pub(super) fn load_number_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        if !self.writable {
            // It does not change.
            return self.load_number(offset);
        }
        let from = self.aligned(self.inside(offset, F::LEN)?, F::LEN)?;
        let _access = self.lock().map(RwLock::read);
        // SAFETY: the number is inside the memory and aligned (just checked), the rest is as in `copy_out`.
        Ok(F::from_bits(unsafe { words::load_acquire(from, F::LEN) }))
    }

    pub(super) fn store_number<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        let to = self.aligned(self.to_write(offset, F::LEN)?, F::LEN)?;
        let _access = self.lock().map(RwLock::write);
        // SAFETY: the number is inside the memory and aligned (just checked), the rest is as in `copy_in`.
        unsafe { words::store_release(to, F::LEN, number.bits()) };
        Ok(())
    }

    pub(super) fn borrow_bytes(&mut self) -> Result<&[u8], Errno> {
        self.check_own(Access::lets_peers_write)?;
        // SAFETY: the memory is alive and initialised. Nothing writes to it as long as `self` is borrowed. No other region
        // has the memory, nor a handle by which one could get it. This program writes by `&mut Mr` only. The device and its provider write for work in flight: none exists, and a post needs
        // `&Mr`. A peer has no right to write, and no window with such a right may be bound: a grant needs `&mut Mr`, or
        // `&Mr` for a window.
        Ok(unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    pub(super) fn borrow_bytes_mut(&mut self) -> Result<&mut [u8], Errno> {
        self.check_own(|_| true)?;
        if !self.writable {
            return Err(Errno::EACCES);
        }
        // SAFETY: as in `borrow_bytes`. The memory is writable, and nothing else in this program accesses it, because
        // `self` is borrowed by `&mut`. A read by the device meanwhile changes nothing here.
        Ok(unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }

    /// Whether only this program writes to it, and no window with conflicting rights may be bound to it.
    fn check_own(&self, conflicts: fn(Access) -> bool) -> Result<(), Errno> {
        let registration = self.registration.as_ref().ok_or(Errno::EINVAL)?;
        let access: Access = registration.access().ok_or(Errno::EINVAL)?;
        if access.lets_peers_write() || registration.is_exposed() {
            return Err(Errno::EACCES);
        }
        if self.shared && registration.memory().is_some_and(Pinned::is_shared) {
            return Err(Errno::EBUSY);
        }
        let is_bound = registration.bound().is_some_and(conflicts);
        if is_bound || registration.traffic() == Traffic::InFlight { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// What orders the accesses of this program, if other regions have the same memory.
    fn lock(&self) -> Option<&RwLock<()>> {
        if self.shared { self.shared_lock() } else { None }
    }

    #[cold]
    fn shared_lock(&self) -> Option<&RwLock<()>> {
        self.registration.as_ref()?.memory()?.shared().map(SharedBuffer::access)
    }

    /// Returns the address of a range, if the range is inside the memory.
    fn inside(&self, offset: usize, len: usize) -> Result<*mut u8, Errno> {
        match offset.checked_add(len) {
            // Inside the memory, or right behind it.
            Some(end) if end <= self.len => Ok(self.start.as_ptr().wrapping_add(offset)),
            Some(_) | None => Err(Errno::EINVAL),
        }
    }

    fn to_write(&self, offset: usize, len: usize) -> Result<*mut u8, Errno> {
        let to = self.inside(offset, len)?;
        if self.writable { Ok(to) } else { Err(Errno::EACCES) }
    }

    fn aligned(&self, at: *mut u8, len: usize) -> Result<*mut u8, Errno> {
        if at.addr() % len == 0 { Ok(at) } else { Err(Errno::EINVAL) }
    }
}
