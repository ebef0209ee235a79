//! Cancels a wait from another thread.

use std::os::fd::{AsFd, BorrowedFd};

use cmid_io_common::Waker;
use cmid_proto::Errno;

/// Cancels the waits of the driver that it is passed to, from any thread. Clones cancel the same waits.
#[derive(Clone, Debug)]
pub struct Canceller {
    /// Nobody reads its descriptor, so it stays readable for poll(2).
    waker: Waker,
}

impl Canceller {
    /// Creates a canceller that has not cancelled.
    ///
    /// # Errors
    /// The errno of eventfd(2).
    pub fn new() -> Result<Self, Errno> {
        let waker = Waker::new().map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)))?;
        Ok(Canceller { waker })
    }

    /// Ends the current wait and every later one. The request itself continues in the device.
    pub fn cancel(&self) {
        self.waker.wake();
    }
}

impl AsFd for Canceller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
