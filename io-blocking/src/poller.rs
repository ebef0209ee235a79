//! The channels to wait for with poll(2): a list, as there are few.

use std::os::fd::BorrowedFd;

use cmid_proto::{ChannelKey, Errno, Poller, Time};

use crate::clock::now;

/// The channels of one driver; each wait takes their descriptors from the device.
#[derive(Debug, Default)]
pub struct Channels {
    keys: Vec<ChannelKey>,
}

impl Channels {
    pub(crate) fn keys(&self) -> &[ChannelKey] {
        &self.keys
    }
}

impl Poller for Channels {
    /// As poll(2) is. It does not look at channels from which no event is wanted.
    const LEVEL_TRIGGERED: bool = true;

    fn clock(&self) -> Option<Time> {
        Some(now())
    }

    fn add(&mut self, channel: ChannelKey, _fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.keys.push(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _fd: BorrowedFd<'_>) {
        self.keys.retain(|&key| key != channel);
    }
}
