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
    /// Registers the CQ in the present runtime. Connections that are attached within the runtime can call it in their
    /// closure.
    ///
    /// # Errors
    /// That of the registration.
    pub fn new(cq: C) -> io::Result<Self> {
        #[allow(deprecated, reason = "an `OwnedFd` keeps its descriptor; the replacement is unsafe")]
        let readable = AsyncFd::new(cq.fd().try_clone_to_owned()?)?;
        Ok(Completions { cq, readable })
    }

    /// Returns the CQ.
    pub fn cq(&mut self) -> &mut C {
        &mut self.cq
    }

    /// Waits for the next completion, of success or of a failure. A future that is dropped has taken none.
    ///
    /// # Errors
    /// The errno of the device, or the runtime cannot wait any more.
    pub async fn next(&mut self) -> io::Result<Completion> {
        loop {
            if let Some(completion) = self.cq.poll_one()? {
                return Ok(completion);
            }
            // A notification that is not taken would leave the descriptor readable, without an edge for the next one.
            self.cq.take_notifications()?;
            self.cq.arm()?;
            // What has come before does not notify.
            if let Some(completion) = self.cq.poll_one()? {
                return Ok(completion);
            }
            self.readable.readable().await?.clear_ready();
        }
    }
}
