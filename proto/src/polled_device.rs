//! Device middleware that registers each open channel with a poller and removes it when the channel closes.

use core::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::vec::Vec;

use crate::call::{Call, Outcome};
use crate::device::Pollable;
use crate::device_layer::DeviceLayer;
use crate::errno::Errno;
use crate::event::RawEvent;
use crate::key::{ChannelKey, IdKey};
use crate::time::Time;

/// A poller for the descriptors of channels.
pub trait Poller {
    /// Adds the descriptor of a channel to those that the poller waits for. Called once per channel.
    ///
    /// # Errors
    /// The error of the system call. The channel is then not opened.
    fn add(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Removes the descriptor of a channel. Called before the descriptor is closed or released.
    fn remove(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>);

    /// As [`Device::LEVEL_TRIGGERED`](crate::Device::LEVEL_TRIGGERED).
    const LEVEL_TRIGGERED: bool = false;

    /// Resumes reports of a channel. Called after [`disarm`](Poller::disarm), and after a migration to the channel,
    /// because `ucma_migrate_id` moves events without waking a poller. For level-triggered pollers.
    fn arm(&mut self, _channel: ChannelKey, _fd: BorrowedFd<'_>) {}

    /// Stops reports of a channel that is readable and is not read now, until it is armed again. For level-triggered
    /// pollers.
    fn disarm(&mut self, _channel: ChannelKey, _fd: BorrowedFd<'_>) {}

    /// As [`Device::clock`](crate::Device::clock).
    fn clock(&self) -> Option<Time> {
        None
    }
}

/// A layer that registers the open channels of a device with a poller. Derefs to the device, for its data path.
#[derive(Debug)]
pub struct PolledDevice<D, P> {
    device: D,
    poller: P,
    /// Channels that are disarmed until they are read.
    disarmed: Vec<ChannelKey>,
    /// The id that was migrated last, and its new channel, which may have events without a wake-up. Cleared when the
    /// channel is read. Also cleared when the id is accepted, because the id of a request has no events before its
    /// accept.
    moved: Option<(IdKey, ChannelKey)>,
}

impl<D: Pollable, P: Poller> PolledDevice<D, P> {
    /// Creates a device without channels.
    pub fn new(device: D, poller: P) -> Self {
        PolledDevice { device, poller, disarmed: Vec::new(), moved: None }
    }

    /// Returns the poller.
    pub fn poller(&self) -> &P {
        &self.poller
    }

    /// Returns the poller, so that a driver can register other descriptors.
    pub fn poller_mut(&mut self) -> &mut P {
        &mut self.poller
    }

    fn add(&mut self, channel: ChannelKey) -> Result<(), Errno> {
        let fd = self.device.fd(channel).ok_or(Errno::EBADF)?;
        self.poller.add(channel, fd)
    }

    #[cold]
    fn open(&mut self, channel: ChannelKey, private_data: &[u8]) -> Outcome {
        self.device.call(&Call::OpenChannel { channel }, private_data)?;
        if let Err(errno) = self.add(channel) {
            // A channel that is not registered would never be read. It was just opened and has no events.
            self.device.call(&Call::CloseChannel { channel }, &[])?;
            return Err(errno);
        }
        Ok(())
    }

    #[cold]
    fn close(&mut self, channel: ChannelKey, private_data: &[u8]) -> Outcome {
        self.remove(channel);
        self.device.call(&Call::CloseChannel { channel }, private_data)
    }

    fn migrate(&mut self, call: &Call, id: IdKey, to: ChannelKey, private_data: &[u8]) -> Outcome {
        self.device.call(call, private_data)?;
        if let Some((_, before)) = self.moved.replace((id, to)) {
            // A disarmed channel is armed when it is read.
            if !self.disarmed.contains(&before) {
                self.arm(before);
            }
        }
        Ok(())
    }

    /// Makes an accept. The id of a request has no events before it is accepted (`ucma_event_handler`), so its
    /// migration has moved none.
    fn accept(&mut self, call: &Call, id: IdKey, private_data: &[u8]) -> Outcome {
        if self.moved.is_some_and(|(moved, _)| moved == id) {
            self.moved = None;
        }
        self.device.call(call, private_data)
    }

    fn remove(&mut self, channel: ChannelKey) {
        self.disarmed.retain(|&disarmed| disarmed != channel);
        self.moved = self.moved.filter(|&(_, to)| to != channel);
        if let Some(fd) = self.device.fd(channel) {
            self.poller.remove(channel, fd);
        }
    }
}

impl<D: Pollable, P: Poller> PolledDevice<D, P> {
    fn arm(&mut self, channel: ChannelKey) {
        if let Some(fd) = self.device.fd(channel) {
            self.poller.arm(channel, fd);
        }
    }

    fn arm_before_read(&mut self, on: ChannelKey) {
        if !self.disarmed.is_empty() {
            self.arm_again(on);
        }
        if self.moved.is_some() {
            self.arm_moved(on);
        }
    }

    /// Arms a channel that events may have moved to. Called when the channel is read, so that later events are
    /// reported.
    #[cold]
    fn arm_moved(&mut self, channel: ChannelKey) {
        if self.moved.is_some_and(|(_, to)| to == channel) {
            self.moved = None;
            self.arm(channel);
        }
    }

    #[cold]
    fn arm_again(&mut self, channel: ChannelKey) {
        if let Some(at) = self.disarmed.iter().position(|&disarmed| disarmed == channel) {
            self.disarmed.swap_remove(at);
            self.arm(channel);
        }
    }
}

impl<D, P> Deref for PolledDevice<D, P> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.device
    }
}

impl<D, P> DerefMut for PolledDevice<D, P> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: Pollable, P: Poller> DeviceLayer for PolledDevice<D, P> {
    type Inner = D;
    type Handle = D::Handle;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    const LAYER_LEVEL_TRIGGERED: bool = P::LEVEL_TRIGGERED;

    fn on_clock(&self) -> Option<Time> {
        self.poller.clock()
    }

    fn on_leave_unread(&mut self, channel: ChannelKey) {
        if P::LEVEL_TRIGGERED && !self.disarmed.contains(&channel) {
            if let Some(fd) = self.device.fd(channel) {
                self.poller.disarm(channel, fd);
                self.disarmed.push(channel);
            }
        }
    }

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.arm_before_read(on);
        self.device.fetch(on, child)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        match *call {
            Call::CloseChannel { channel } => self.close(channel, private_data),
            Call::OpenChannel { channel } => self.open(channel, private_data),
            Call::Migrate { id, to, .. } if P::LEVEL_TRIGGERED => self.migrate(call, id, to, private_data),
            Call::Accept { id, .. } if P::LEVEL_TRIGGERED => self.accept(call, id, private_data),
            Call::Migrate { .. }
            | Call::CreateId { .. }
            | Call::Bind { .. }
            | Call::ResolveAddr { .. }
            | Call::ResolveRoute { .. }
            | Call::Listen { .. }
            | Call::Connect { .. }
            | Call::Accept { .. }
            | Call::Reject { .. }
            | Call::Establish { .. }
            | Call::Disconnect { .. }
            | Call::Notify { .. }
            | Call::Join { .. }
            | Call::Leave { .. }
            | Call::SetOption { .. }
            | Call::SetEce { .. }
            | Call::Destroy { .. } => self.device.call(call, private_data),
        }
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        self.remove(channel);
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        self.add(channel).inspect_err(|_| {
            // The id must not stay in the device. If the destroy fails too, nothing more can be done.
            let _ = self.device.call(&Call::Destroy { id }, &[]);
            let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
        })
    }
}
