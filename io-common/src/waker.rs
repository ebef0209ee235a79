//! Ends the wait of a driver from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Ends the wait of a driver, from any thread. Clones wake the same driver. Use it for the application's own queues between
/// threads. In mio it can be used beside a `mio::Waker`, of which a poll has at most one.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker. A driver registers its descriptor, edge-triggered.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// Ends the current wait, or the next one if there is none. For a driver that is nested in another loop: makes its
    /// descriptor readable until the next turn. Several calls may end one wait.
    pub fn wake(&self) {
        // Each write makes an edge-triggered descriptor readable again, so it is never read. A write fails only once the
        // counter is full, after 2^64 calls.
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
