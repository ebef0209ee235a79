//! The user's registry: each channel is registered under a token of the driver's range.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use cmid_proto::{ChannelKey, Errno, Poller, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::clock::now;

/// Registers each channel in the user's `Poll`, edge-triggered like all sources in mio.
#[derive(Debug)]
pub struct Tokens {
    registry: Registry,
    range: Range<usize>,
    /// The channel of each token, from the first one to the last one used so far.
    channels: Vec<Option<ChannelKey>>,
    /// The free tokens among them.
    free: Vec<Token>,
    tokens: BTreeMap<ChannelKey, Token>,
}

impl Tokens {
    pub(crate) fn new(registry: Registry, range: Range<usize>) -> Self {
        Tokens { registry, range, channels: Vec::new(), free: Vec::new(), tokens: BTreeMap::new() }
    }

    /// Whether a token is in the driver's range, in use or not.
    pub(crate) fn has(&self, token: Token) -> bool {
        self.range.contains(&token.0)
    }

    /// The channel of a token.
    pub(crate) fn channel(&self, token: Token) -> Option<ChannelKey> {
        self.channels.get(token.0.checked_sub(self.range.start)?).copied().flatten()
    }

    fn set(&mut self, token: Token, channel: Option<ChannelKey>) {
        if let Some(slot) = self.channels.get_mut(token.0 - self.range.start) {
            *slot = channel;
        }
    }

    fn free_token(&mut self) -> Option<Token> {
        self.free.pop().or_else(|| {
            let token = Token(self.range.start + self.channels.len());
            self.has(token).then(|| {
                self.channels.push(None);
                token
            })
        })
    }
}

impl Poller for Tokens {
    fn add(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let token = self.free_token().ok_or(Errno::ENOMEM)?;
        if let Err(error) = self.registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE) {
            self.free.push(token);
            return Err(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)));
        }
        self.set(token, Some(channel));
        self.tokens.insert(channel, token);
        Ok(())
    }

    fn clock(&self) -> Option<Time> {
        Some(now())
    }

    fn remove(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) {
        if let Some(token) = self.tokens.remove(&channel) {
            self.set(token, None);
            self.free.push(token);
            // This fails only for a descriptor that is not registered. There is then nothing to remove.
            let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
    }
}
