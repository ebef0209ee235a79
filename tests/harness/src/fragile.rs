//! A device on which reads fail, or any operation.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, RawEvent};

/// A device on which reads fail, or one operation. Its siblings share the count.
#[derive(Debug)]
pub struct Fragile<D> {
    device: D,
    failures: Arc<AtomicU32>,
    errno: Errno,
    is_of_reads: bool,
}

impl<D> Fragile<D> {
    /// Creates a layer in which the next `failures` reads of a channel fail with `errno`. The count can be set later.
    pub fn new(device: D, failures: Arc<AtomicU32>, errno: Errno) -> Self {
        Fragile { device, failures, errno, is_of_reads: true }
    }

    /// Creates a layer in which the operation fails that counts `nth` from 1 to 0: a call, a read, a release or an adopt. The
    /// count can be set later; none fails while it is 0.
    pub fn nth(device: D, nth: Arc<AtomicU32>, errno: Errno) -> Self {
        Fragile { device, failures: nth, errno, is_of_reads: false }
    }

    fn operate(&self, is_read: bool) -> Result<(), Errno> {
        if self.is_of_reads && !is_read {
            return Ok(());
        }
        let left = self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let fails = left.is_ok_and(|left| self.is_of_reads || left == 1);
        if fails { Err(self.errno) } else { Ok(()) }
    }
}

impl<D: Device> DeviceLayer for Fragile<D> {
    cmid_proto::layer_on!(device: D);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.operate(true)?;
        self.device.fetch(on, child)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.operate(false)?;
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        self.operate(false)?;
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.operate(false)?;
        self.device.adopt(id, channel, handle)
    }
}

impl<D: Pollable> Pollable for Fragile<D> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        let (device, failures) = (self.device.sibling(), Arc::clone(&self.failures));
        Fragile { device, failures, errno: self.errno, is_of_reads: self.is_of_reads }
    }
}
