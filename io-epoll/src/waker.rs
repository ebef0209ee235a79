//! Ends the wait of a driver from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use rustix::event::{EventfdFlags, eventfd};

use crate::poller::errno;

/// Ends the [wait](crate::Epoll::wait) of a driver, from any thread. Clones wake the same driver. Use it
/// for the application's own queues between threads.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    pub(crate) fn new() -> Result<Self, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno)?;
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// Ends the current wait, or the next one if there is none. For a driver that is nested in another loop: makes its
    /// descriptor readable until the next [turn](crate::Epoll::turn). Several calls may end one wait.
    pub fn wake(&self) {
        // Each write makes an edge-triggered descriptor readable again, so it is never read. A write fails only once
        // the counter is full, after 2^64 calls.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A task's waker that wakes the driver.
impl From<Waker> for std::task::Waker {
    fn from(waker: Waker) -> Self {
        Arc::new(waker).into()
    }
}

impl std::task::Wake for Waker {
    fn wake(self: Arc<Self>) {
        Waker::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Waker::wake(self);
    }
}
