//! The user's registry: channels come and go, each under a token of the driver's range.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use cmid_proto::{ChannelKey, Errno, Poller};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

/// Registers each channel in the user's `Poll`, edge-triggered as everything in mio.
#[derive(Debug)]
pub struct Tokens {
    registry: Registry,
    first: usize,
    /// The channel of each token, from the first on.
    channels: Vec<Option<ChannelKey>>,
}

impl Tokens {
    pub(crate) fn new(registry: Registry, tokens: Range<usize>) -> Self {
        Tokens { registry, first: tokens.start, channels: vec![None; tokens.len()] }
    }

    /// The channel that has this token.
    pub(crate) fn channel(&self, token: Token) -> Option<ChannelKey> {
        self.channels.get(token.0.checked_sub(self.first)?).copied().flatten()
    }
}

impl Poller for Tokens {
    fn add(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let slot = self.channels.iter().position(Option::is_none).ok_or(Errno::ENOMEM)?;
        let token = Token(self.first + slot);
        self.registry
            .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)))?;
        self.channels[slot] = Some(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) {
        if let Some(slot) = self.channels.iter_mut().find(|slot| **slot == Some(channel)) {
            *slot = None;
            // It can only fail for a descriptor that is not registered, and then there is nothing to remove.
            let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
    }
}
