//! The user's registry: each channel is registered under a token of the driver's range.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cmid_proto::{ChannelKey, Errno, Pollable, Poller, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use cmid_io_common::Waker;
use cmid_io_common::now;

/// Registers each channel in the user's `Poll`, edge-triggered like all sources in mio.
#[derive(Debug)]
pub struct Channels {
    registry: Registry,
    range: Range<usize>,
    /// The channel of each token, from the first one to the last one used so far.
    channels: Vec<Option<ChannelKey>>,
    /// The tokens in `channels` that are free.
    free: Vec<Token>,
    tokens: BTreeMap<ChannelKey, Token>,
    /// The waker, after the first call of `waker`.
    waker: Option<Waker>,
}

impl Channels {
    pub(crate) fn new(registry: Registry, range: Range<usize>) -> Self {
        Channels { registry, range, channels: Vec::new(), free: Vec::new(), tokens: BTreeMap::new(), waker: None }
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

impl Channels {
    /// Registers a descriptor under a free token. mio's registration is edge-triggered, so the descriptor of a waker
    /// is reported once per wake, and never read.
    fn register(&mut self, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = self.free_token().ok_or(io::ErrorKind::OutOfMemory)?;
        let registered = self.registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE);
        registered.inspect_err(|_| self.free.push(token))?;
        Ok(token)
    }

    /// Returns the waker. The first call creates it and registers its descriptor.
    pub(crate) fn waker(&mut self) -> io::Result<Waker> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Waker::new()?;
        self.register(waker.as_fd())?;
        Ok(self.waker.insert(waker).clone())
    }
}

/// Clones of the waker may outlive the driver.
impl Drop for Channels {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            // This fails only for a descriptor that is not registered. There is then nothing to remove.
            let _ = self.registry.deregister(&mut SourceFd(&waker.as_fd().as_raw_fd()));
        }
    }
}

impl<D: Pollable> Poller<D> for Channels {
    fn add(&mut self, channel: ChannelKey, device: &D) -> Result<(), Errno> {
        let fd = device.fd(channel).ok_or(Errno::EBADF)?;
        let token = self.register(fd).map_err(|error| match error.raw_os_error() {
            Some(errno) => Errno(errno),
            None if error.kind() == io::ErrorKind::OutOfMemory => Errno::ENOMEM,
            None => Errno::EIO,
        })?;
        self.set(token, Some(channel));
        self.tokens.insert(channel, token);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, device: &D) {
        if let Some(token) = self.tokens.remove(&channel) {
            self.set(token, None);
            self.free.push(token);
            if let Some(fd) = device.fd(channel) {
                // This fails only for a descriptor that is not registered. There is then nothing to remove.
                let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
            }
        }
    }

    fn clock(&self) -> Option<Time> {
        Some(now())
    }
}
