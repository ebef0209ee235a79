//! An `rdma_event_channel`. The drop of the last reference closes it.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;

use cmid_proto::Errno;

use crate::errno;
use crate::ffi::{self, c_int, rdma_event_channel};
use crate::process::Process;

/// The channel in librdmacm's form.
pub(crate) struct RawChannel(NonNull<rdma_event_channel>, Process);

// SAFETY: an rdma_event_channel is a descriptor in malloc'ed memory; librdmacm ties neither to a thread.
unsafe impl Send for RawChannel {}
// SAFETY: nothing writes to it before it is destroyed; only its last owner destroys it.
unsafe impl Sync for RawChannel {}

impl RawChannel {
    /// `rdma_create_event_channel`, which sets close-on-exec, plus `O_NONBLOCK`.
    pub(crate) fn open() -> Result<Self, Errno> {
        let process = Process::current()?;
        // SAFETY: takes no arguments.
        let raw = unsafe { ffi::rdma_create_event_channel() };
        let raw = RawChannel(NonNull::new(raw).ok_or_else(errno::last)?, process);
        set_nonblocking(raw.fd())?;
        Ok(raw)
    }

    pub(crate) fn process(&self) -> Process {
        self.1
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.0.as_ptr()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as `self` is borrowed. It is not −1, because the creation has
        // succeeded.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    fn fd(&self) -> c_int {
        // SAFETY: the channel is open as long as `self` lives, and only rdma_destroy_event_channel writes to it.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        if self.1.is_other() {
            return;
        }
        // SAFETY: made by rdma_create_event_channel and destroyed only here. `Rdmacm` and `Handle` drop their ids
        // before their channels, and close no channel that has ids. An anchor holds its channel, as does a call that is
        // under way. So no rdma_cm_id points at it any more.
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// Adds `O_NONBLOCK` to an open descriptor.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<(), Errno> {
    // SAFETY: fcntl with these two commands accesses no memory of this program, for any descriptor.
    let flags = unsafe { ffi::fcntl(fd, ffi::F_GETFL) };
    if flags < 0 {
        return Err(errno::last());
    }
    // SAFETY: as for the first command.
    if unsafe { ffi::fcntl(fd, ffi::F_SETFL, flags | ffi::O_NONBLOCK) } < 0 {
        return Err(errno::last());
    }
    Ok(())
}
