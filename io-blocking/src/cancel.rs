//! Ending a wait from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use rustix::event::{EventfdFlags, eventfd};

/// Ends the waits of what it was given to, from any thread. Clones are the same canceller.
#[derive(Clone, Debug)]
pub struct Canceller {
    fd: Arc<OwnedFd>,
}

impl Canceller {
    /// One that has not cancelled anything.
    ///
    /// # Errors
    /// What eventfd(2) failed with.
    pub fn new() -> Result<Self, Errno> {
        let fd =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| Errno(error.raw_os_error()))?;
        Ok(Canceller { fd: Arc::new(fd) })
    }

    /// Ends the wait that is under way and every later one. What was waited for goes on in the device.
    pub fn cancel(&self) {
        // The only failure of a non-blocking eventfd is a counter that is full, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

impl AsFd for Canceller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
