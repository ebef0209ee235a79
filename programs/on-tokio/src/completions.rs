//! Completions of a CQ as futures.

use std::io;
use std::os::fd::OwnedFd;

use cmid_epoll::proto::datapath::{Completion, CompletionQueue};
use tokio::io::unix::AsyncFd;

/// A CQ with the registration of its descriptor.
#[derive(Debug)]
pub struct Completions<C> {
    cq: C,
    readable: AsyncFd<OwnedFd>,
}

impl<C: CompletionQueue> Completions<C> {
    /// Registers the CQ in the current runtime. The closure `attach` of a connection can call it, because it runs
    /// within the runtime.
    ///
    /// # Errors
    /// The error of the registration.
    pub fn new(cq: C) -> io::Result<Self> {
        #[allow(deprecated, reason = "an `OwnedFd` keeps its descriptor; the replacement is unsafe")]
        let readable = AsyncFd::new(cq.fd().try_clone_to_owned()?)?;
        Ok(Completions { cq, readable })
    }

    /// Returns the CQ.
    pub fn cq(&mut self) -> &mut C {
        &mut self.cq
    }

    /// Waits for the next completion, successful or not. A future that is dropped has taken no completion.
    ///
    /// # Errors
    /// The errno of the device, or the error of the runtime's wait.
    pub async fn next(&mut self) -> io::Result<Completion> {
        loop {
            if let Some(completion) = self.cq.poll_one()? {
                return Ok(completion);
            }
            // A notification that is not taken would leave the descriptor readable, without an edge for the next
            // notification.
            self.cq.take_notifications()?;
            self.cq.arm()?;
            // Earlier completions cause no notification.
            if let Some(completion) = self.cq.poll_one()? {
                return Ok(completion);
            }
            self.readable.readable().await?.clear_ready();
        }
    }
}
