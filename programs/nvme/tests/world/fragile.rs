//! A simulated device that panics on a reactor, once it is told to.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cmid_mio::proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, RawEvent};
use cmid_mio::sim::SimDevice;

pub(crate) struct Fragile {
    pub(crate) device: SimDevice,
    /// Whether the next event that a reactor fetches panics.
    pub(crate) panics: Arc<AtomicBool>,
}

impl DeviceLayer for Fragile {
    type Inner = SimDevice;
    type Handle = <SimDevice as Device>::Handle;

    fn inner(&self) -> &SimDevice {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let on_reactor = std::thread::current().name() == Some("nvme reactor");
        assert!(!on_reactor || !self.panics.swap(false, Ordering::Relaxed), "a panic, as the test wants it");
        self.device.fetch(on, child)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
    }
}

impl Pollable for Fragile {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Fragile { device: self.device.sibling(), panics: Arc::clone(&self.panics) }
    }
}
