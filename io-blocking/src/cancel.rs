//! Cancels a wait from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use rustix::event::{EventfdFlags, eventfd};

/// Cancels the waits of the driver that it is passed to, from any thread. Clones cancel the same waits.
#[derive(Clone, Debug)]
pub struct Canceller {
    fd: Arc<OwnedFd>,
}

impl Canceller {
    /// Creates a canceller that has not cancelled.
    ///
    /// # Errors
    /// The errno of eventfd(2).
    pub fn new() -> Result<Self, Errno> {
        let fd =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| Errno(error.raw_os_error()))?;
        Ok(Canceller { fd: Arc::new(fd) })
    }

    /// Ends the current wait and every later one. The request itself continues in the device.
    pub fn cancel(&self) {
        // A write to a non-blocking eventfd fails only if the counter is full. The descriptor is then readable
        // already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

impl AsFd for Canceller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
