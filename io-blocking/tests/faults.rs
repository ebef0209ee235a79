//! A device whose channels cannot be read, though they are readable.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cmid_blocking::{Error, Listener};
use cmid_proto::{ChannelKey, Device, DeviceLayer, Errno, Fault, IdKey, Outcome, Pollable, RawEvent};
use cmid_sim::SimDevice;

use common::{FOR_EVER, SOON, Silent, host, server};

/// A device that reads nothing while it is broken, or for so many reads.
struct Fragile {
    device: SimDevice,
    broken: Arc<AtomicBool>,
    failures: u32,
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
    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<'_>>, Errno> {
        if let Some(left) = self.failures.checked_sub(1) {
            self.failures = left;
            return Err(Errno::ENOMEM);
        }
        if self.broken.load(Ordering::Relaxed) { Err(Errno::EIO) } else { self.device.fetch(on, child) }
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
        Fragile { device: self.device.sibling(), broken: Arc::clone(&self.broken), failures: 0 }
    }
}

/// No call of the device comes between the failed reads and the request, so nothing else wakes the listener.
#[test]
fn a_wait_goes_on_after_reads_that_failed() {
    let (host, broken) = (host(), Arc::new(AtomicBool::new(false)));
    let device = Fragile { device: host.device(), broken, failures: 3 };
    let mut listener = Listener::bind(device, server()).unwrap();
    let _client = Silent::connecting(&host);
    listener.accept(SOON).unwrap();
}

#[test]
fn a_wait_ends_when_nothing_can_be_read_and_may_be_tried_again() {
    let (host, broken) = (host(), Arc::new(AtomicBool::new(true)));
    let device = Fragile { device: host.device(), broken: Arc::clone(&broken), failures: 0 };
    let mut listener = Listener::bind(device, server()).unwrap();
    let _client = Silent::connecting(&host);
    for _ in 0..2 {
        match listener.accept(FOR_EVER) {
            Err(Error::Core(cmid_proto::Error::Fault(Fault::Channel { errno, .. }))) => assert_eq!(errno, Errno::EIO),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("a request that nobody read"),
        }
    }
    broken.store(false, Ordering::Relaxed);
    listener.accept(SOON).unwrap();
}
