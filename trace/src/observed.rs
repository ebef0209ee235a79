//! A device layer that passes the steps of its drive to an observer.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use cmid_proto::{ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, StepRecord};

/// Receives the steps of a drive, through [`Observed`].
pub trait Observer {
    /// Called right after each step.
    fn step(&mut self, record: &StepRecord<'_>);

    /// Returns the observer for a [sibling](Pollable::sibling) device, which another drive uses.
    #[must_use]
    fn sibling(&self) -> Self;
}

/// Device middleware that passes each step of its drive to an observer. Forwards all calls to the inner device.
///
/// A drive on another device has no code for observation.
#[derive(Debug)]
pub struct Observed<D, O> {
    device: D,
    observer: O,
}

impl<D, O> Observed<D, O> {
    /// Creates the layer over a device. Create a driver on the result.
    #[must_use]
    pub fn new(device: D, observer: O) -> Self {
        Observed { device, observer }
    }

    /// Returns the observer.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.observer
    }
}

impl<D, O> Deref for Observed<D, O> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.device
    }
}

impl<D, O> DerefMut for Observed<D, O> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: Device, O: Observer> DeviceLayer for Observed<D, O> {
    type Inner = D;
    type Handle = D::Handle;

    const LAYER_OBSERVES: bool = true;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
    }

    fn on_observe(&mut self, record: &StepRecord<'_>) {
        self.observer.step(record);
        self.device.observe(record);
    }
}

impl<D: Pollable, O: Observer> Pollable for Observed<D, O> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Observed { device: self.device.sibling(), observer: self.observer.sibling() }
    }
}
