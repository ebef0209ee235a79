//! The channels that poll(2) waits for: a list, because they are few.

use std::os::fd::BorrowedFd;

use cmid_proto::{ChannelKey, Errno, Poller, Time};

use crate::clock::now;

/// The channels of one driver. Each wait takes their descriptors from the device.
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
    /// poll(2) is level-triggered. Channels that the core cannot read are not polled.
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
