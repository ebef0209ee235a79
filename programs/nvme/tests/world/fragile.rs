//! A simulated device that panics on a reactor, once it is told to.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use cmid_mio::proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, RawEvent};
use cmid_mio::sim::SimDevice;

/// What a reactor does when the device is to panic: it fetches an event, makes a call, adopts an id.
pub(crate) const FETCH: u8 = 1;
pub(crate) const CALL: u8 = 2;
pub(crate) const ADOPT: u8 = 3;

pub(crate) struct Fragile {
    pub(crate) device: SimDevice,
    /// What panics next on a reactor, once; 0 for nothing.
    pub(crate) panics: Arc<AtomicU8>,
}

impl Fragile {
    fn is_at(&self, what: u8) {
        let on_reactor = std::thread::current().name() == Some("nvme reactor");
        let panics = on_reactor && self.panics.compare_exchange(what, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        assert!(!panics, "a panic, as the test wants it");
    }
}

impl DeviceLayer for Fragile {
    cmid_mio::proto::layer_on!(device: SimDevice);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.is_at(FETCH);
        self.device.fetch(on, child)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.is_at(CALL);
        self.device.call(call, private_data)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: <Self::Inner as Device>::Handle) -> Outcome {
        self.is_at(ADOPT);
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
