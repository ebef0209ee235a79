//! A device on which reads fail.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cmid_proto::{ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, RawEvent};

/// A device on which the next reads of a channel fail. Its siblings share the count.
#[derive(Debug)]
pub struct Fragile<D> {
    device: D,
    failures: Arc<AtomicU32>,
    errno: Errno,
}

impl<D> Fragile<D> {
    /// Creates a layer in which the next `failures` reads fail with `errno`. The count can be set later.
    pub fn new(device: D, failures: Arc<AtomicU32>, errno: Errno) -> Self {
        Fragile { device, failures, errno }
    }
}

impl<D: Device> DeviceLayer for Fragile<D> {
    type Inner = D;
    type Handle = D::Handle;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let left = self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() { Err(self.errno) } else { self.device.fetch(on, child) }
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
    }
}

impl<D: Pollable> Pollable for Fragile<D> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Fragile { device: self.device.sibling(), failures: Arc::clone(&self.failures), errno: self.errno }
    }
}
