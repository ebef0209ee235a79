//! A device on which disconnects and releases fail.

use std::os::fd::BorrowedFd;

use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable};
use cmid_sim::SimDevice;

/// A device on which the next `failures` disconnects and releases fail with `ENOMEM`.
pub(crate) struct Stumbling {
    pub(crate) device: SimDevice,
    pub(crate) failures: u32,
}

impl Stumbling {
    fn fails(&mut self) -> bool {
        let left = self.failures.checked_sub(1);
        self.failures = left.unwrap_or(0);
        left.is_some()
    }
}

impl DeviceLayer for Stumbling {
    type Inner = SimDevice;

    fn inner(&self) -> &SimDevice {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if matches!(call, Call::Disconnect { .. }) && self.fails() {
            return Err(Errno::ENOMEM);
        }
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<<Self::Inner as Device>::Handle, Errno> {
        if self.fails() { Err(Errno::ENOMEM) } else { self.device.release(id, channel) }
    }
}

impl Pollable for Stumbling {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Stumbling { device: self.device.sibling(), failures: 0 }
    }
}
