//! The channels that poll(2) waits for: a list, because they are few.

use cmid_proto::{ChannelKey, Errno, Pollable, Poller, Time};

use cmid_io_common::now;

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

impl<D: Pollable> Poller<D> for Channels {
    fn add(&mut self, channel: ChannelKey, _device: &D) -> Result<(), Errno> {
        self.keys.push(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _device: &D) {
        self.keys.retain(|&key| key != channel);
    }

    /// As poll(2). Channels that the core cannot read are not polled.
    fn is_level_triggered(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<Time> {
        Some(now())
    }
}
