//! The poller of a drive: which channels it waits for.

use super::{Drive, Observer};
use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::key::{ChannelKey, IdKey};
use crate::time::Time;

/// A poller for the channels of a device: poll(2), epoll(7), mio. `()` waits for nothing: see
/// [`Drive::readable_all`](crate::Drive::readable_all).
///
/// With a [`Pollable`](crate::Pollable) device, the descriptor of a channel is [`Pollable::fd`](crate::Pollable::fd).
pub trait Poller<D: ?Sized> {
    /// Adds a channel of the device to those that the poller waits for. Called once per channel.
    ///
    /// # Errors
    /// The error of the system call. The channel is then not opened.
    fn add(&mut self, channel: ChannelKey, device: &D) -> Result<(), Errno>;

    /// Removes a channel. Called before its descriptor is closed or released.
    fn remove(&mut self, channel: ChannelKey, device: &D);

    /// Whether it reports a channel again while the channel has events (poll(2), epoll(7) without `EPOLLET`). A drive then
    /// reads one event per report; otherwise it reads until a read finds none.
    fn is_level_triggered(&self) -> bool {
        false
    }

    /// Resumes reports of a channel. Called after [`disarm`](Poller::disarm), and after a migration to the channel,
    /// because `ucma_migrate_id` moves events without waking a poller. For level-triggered pollers.
    fn arm(&mut self, _channel: ChannelKey, _device: &D) {}

    /// Stops reports of a channel that is readable and is not read now, until it is armed again. For level-triggered
    /// pollers.
    fn disarm(&mut self, _channel: ChannelKey, _device: &D) {}

    /// Returns the present time, for [`Drive::within`](crate::Drive::within); `None` without a clock.
    fn clock(&self) -> Option<Time> {
        None
    }
}

impl<D: ?Sized> Poller<D> for () {
    fn add(&mut self, _channel: ChannelKey, _device: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _channel: ChannelKey, _device: &D) {}
}

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Makes a call on the device, and registers the channel that it opens.
    pub(super) fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Call::CloseChannel { channel } = *call {
            self.unregister(channel);
        } else if let Call::Accept { id, .. } = *call {
            // The id of a request has no events before it is accepted (`ucma_event_handler`), so its migration has moved none.
            self.moved = self.moved.filter(|&(moved, _)| moved != id);
        }
        self.device.call(call, private_data)?;
        if let Call::OpenChannel { channel } = *call {
            self.poller.add(channel, &self.device).inspect_err(|_| {
                // A channel that is not registered would never be read. It was just opened and has no events. If the close
                // fails too, nothing more can be done.
                let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
            })?;
        } else if let (Call::Migrate { id, to, .. }, true) = (*call, self.poller.is_level_triggered()) {
            // A disarmed channel is armed when it is read.
            let before = self.moved.replace((id, to)).filter(|(_, before)| !self.disarmed.contains(before));
            before.into_iter().for_each(|(_, before)| self.poller.arm(before, &self.device));
        }
        Ok(())
    }

    /// Arms a channel that is read next, so that later events are reported.
    pub(super) fn arm(&mut self, on: ChannelKey) {
        if !self.disarmed.is_empty() || self.moved.is_some() {
            self.arm_again(on);
        }
    }

    #[cold]
    fn arm_again(&mut self, on: ChannelKey) {
        if let Some(at) = self.disarmed.iter().position(|&disarmed| disarmed == on) {
            self.disarmed.swap_remove(at);
            self.poller.arm(on, &self.device);
        }
        if self.moved.is_some_and(|(_, to)| to == on) {
            self.moved = None;
            self.poller.arm(on, &self.device);
        }
    }

    /// Disarms a channel that has events and is not read now: the core has no room for it, or it is paused.
    pub(super) fn leave_unread(&mut self, channel: ChannelKey) {
        if self.poller.is_level_triggered() && !self.disarmed.contains(&channel) {
            self.poller.disarm(channel, &self.device);
            self.disarmed.push(channel);
        }
    }

    /// Removes a channel from the poller that is closed or released next.
    pub(super) fn unregister(&mut self, channel: ChannelKey) {
        self.disarmed.retain(|&disarmed| disarmed != channel);
        self.moved = self.moved.filter(|&(_, to)| to != channel);
        self.poller.remove(channel, &self.device);
    }

    /// Adopts a released id and registers its channel.
    pub(super) fn register(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        self.poller.add(channel, &self.device).inspect_err(|_| self.discard(id, channel))
    }

    /// Destroys an id that only the device has, and its channel. If that fails, nothing more can be done.
    pub(super) fn discard(&mut self, id: IdKey, channel: ChannelKey) {
        let _ = self.device.call(&Call::Destroy { id }, &[]);
        let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
    }
}
