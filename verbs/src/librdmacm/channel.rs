//! One event channel.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;

use cmid_proto::Errno;

use crate::errno;
use crate::ffi::{self, c_int, rdma_event_channel};
use crate::process::Process;

/// An open, non-blocking `rdma_event_channel`; dropping it closes it.
pub(crate) struct Channel {
    raw: NonNull<rdma_event_channel>,
    process: Process,
}

// SAFETY: an rdma_event_channel is a descriptor in malloc'ed memory; librdmacm ties neither to a thread.
unsafe impl Send for Channel {}
// SAFETY: nothing writes to it before it is destroyed; only its owner destroys it.
unsafe impl Sync for Channel {}

impl Channel {
    /// `rdma_create_event_channel`, which sets close-on-exec, plus `O_NONBLOCK`.
    pub(crate) fn open() -> Result<Self, Errno> {
        let process = Process::current()?;
        // SAFETY: takes no arguments.
        let raw = errno::of_new(|| unsafe { ffi::rdma_create_event_channel() })?;
        let channel = Channel { raw, process };
        set_nonblocking(channel.raw_fd(), true)?;
        Ok(channel)
    }

    /// The process that opened it.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as `self` is borrowed. It is not −1, because the creation has
        // succeeded.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    fn raw_fd(&self) -> c_int {
        // SAFETY: the channel is open as long as `self` lives, and only rdma_destroy_event_channel writes to it.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.process.is_other() {
            return;
        }
        // SAFETY: made by rdma_create_event_channel and destroyed only here. `Tables` and `Handle` drop their ids
        // before their channels, and close no channel that has ids. An anchor holds its channel. So no rdma_cm_id points
        // at it any more.
        unsafe { ffi::rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}

/// Adds `O_NONBLOCK` to an open descriptor, or removes it.
pub(crate) fn set_nonblocking(fd: c_int, is_set: bool) -> Result<(), Errno> {
    // SAFETY: fcntl with these two commands accesses no memory of this program, for any descriptor.
    let flags = unsafe { ffi::fcntl(fd, ffi::F_GETFL) };
    if flags < 0 {
        return Err(errno::last());
    }
    let flags = if is_set { flags | ffi::O_NONBLOCK } else { flags & !ffi::O_NONBLOCK };
    // SAFETY: as for the first command.
    if unsafe { ffi::fcntl(fd, ffi::F_SETFL, flags) } < 0 {
        return Err(errno::last());
    }
    Ok(())
}
