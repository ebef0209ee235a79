//! The user's registry: each channel is registered under a token of the driver's range.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cmid_proto::{ChannelKey, Errno, Pollable, Poller, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use cmid_io_common::{Process, Waker, now};

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
    process: Process,
}

impl Channels {
    pub(crate) fn new(registry: Registry, range: Range<usize>) -> Self {
        let (channels, free, process) = (Vec::new(), Vec::new(), Process::default());
        Channels { registry, range, channels, free, tokens: BTreeMap::new(), waker: None, process }
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

    /// Removes a descriptor before it is closed: one that a forked child has too would stay registered. In that child this does
    /// nothing, because the poll is that of the parent too.
    fn deregister(&self, fd: BorrowedFd<'_>) {
        if !self.process.is_other() {
            // This fails only for a descriptor that is not registered. There is then nothing to remove.
            let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
    }

    /// Removes the descriptors of the driver, which ends. Clones of its waker may outlive it.
    pub(crate) fn deregister_all(&self, device: &impl Pollable) {
        let channels = self.tokens.keys().filter_map(|channel| device.fd(*channel));
        channels.chain(self.waker.as_ref().map(Waker::as_fd)).for_each(|fd| self.deregister(fd));
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
            device.fd(channel).into_iter().for_each(|fd| self.deregister(fd));
        }
    }

    fn clock(&self) -> Option<Time> {
        Some(now())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cmid_proto::{Acks, Limits};
    use mio::Poll;

    use super::*;
    use crate::{Config, Mio};

    /// The descriptors that are registered in a poll, as the kernel lists them.
    fn registered(poll: &Poll) -> usize {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", poll.as_raw_fd())).unwrap();
        info.lines().filter(|line| line.starts_with("tfd:")).count()
    }

    #[test]
    fn a_dropped_driver_leaves_nothing_in_the_poll_and_a_forked_child_removes_nothing() {
        let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
        let host = fabric.host(&["10.0.0.1".parse().unwrap()]);
        let poll = Poll::new().unwrap();
        for (is_child, left) in [(false, 0), (true, 2)] {
            let config = Config { limits: Limits::SINGLE, tokens: 0..2 };
            let mut driver = Mio::new(host.device(), poll.registry(), config).unwrap();
            let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
            // A forked child has copies of the descriptors.
            let fd = driver.drive().device().fd(channel).unwrap().try_clone_to_owned().unwrap();
            let waker = driver.waker().unwrap().as_fd().try_clone_to_owned().unwrap();
            assert_eq!(registered(&poll), 2);
            if is_child {
                driver.drive().poller_mut().process = Process(0);
            }
            drop(driver);
            assert_eq!(registered(&poll), left);
            drop((fd, waker));
        }
    }
}
