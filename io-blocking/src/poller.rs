//! The channels to wait for with poll(2): a list, as there are few.

use std::os::fd::BorrowedFd;

use cmid_proto::{ChannelKey, Errno, Poller};

/// The channels of one driver; their descriptors are asked of the device for each wait.
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
    fn add(&mut self, channel: ChannelKey, _fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.keys.push(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _fd: BorrowedFd<'_>) {
        self.keys.retain(|&key| key != channel);
    }
}
