//! A device on which disconnects fail.

use std::os::fd::BorrowedFd;

use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable};
use cmid_sim::SimDevice;

/// A device on which the next `failures` disconnects fail with `ENOMEM`.
pub(crate) struct Stumbling {
    pub(crate) device: SimDevice,
    pub(crate) failures: u32,
}

impl DeviceLayer for Stumbling {
    type Inner = SimDevice;
    type Handle = <SimDevice as Device>::Handle;

    fn inner(&self) -> &SimDevice {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if self.failures > 0 && matches!(call, Call::Disconnect { .. }) {
            self.failures -= 1;
            return Err(Errno::ENOMEM);
        }
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
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
