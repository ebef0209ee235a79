//! The poller of a drive: which channels it waits for.

use alloc::vec::Vec;

use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::event::RawEvent;
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

/// A poller, and what it was told of channels.
#[derive(Debug)]
pub(super) struct Polled<P> {
    pub(super) poller: P,
    /// Channels that are disarmed until they are read.
    disarmed: Vec<ChannelKey>,
    /// The id that was migrated last, and its new channel, which may have events without a wake-up. Cleared when the
    /// channel is read. Also cleared when the id is accepted, because the id of a request has no events before its
    /// accept.
    moved: Option<(IdKey, ChannelKey)>,
}

impl<P> Polled<P> {
    pub(super) fn new(poller: P) -> Self {
        Polled { poller, disarmed: Vec::new(), moved: None }
    }

    /// Makes a call on the device, and registers the channel that it opens.
    pub(super) fn call<D: Device>(&mut self, device: &mut D, call: &Call, private_data: &[u8]) -> Outcome
    where
        P: Poller<D>,
    {
        if let Call::CloseChannel { channel } = *call {
            self.remove(device, channel);
        } else if let Call::Accept { id, .. } = *call {
            // The id of a request has no events before it is accepted (`ucma_event_handler`), so its migration has moved none.
            self.moved = self.moved.filter(|&(moved, _)| moved != id);
        }
        device.call(call, private_data)?;
        if let Call::OpenChannel { channel } = *call {
            self.poller.add(channel, device).inspect_err(|_| {
                // A channel that is not registered would never be read. It was just opened and has no events. If the close
                // fails too, nothing more can be done.
                let _ = device.call(&Call::CloseChannel { channel }, &[]);
            })?;
        } else if let (Call::Migrate { id, to, .. }, true) = (*call, self.poller.is_level_triggered()) {
            // A disarmed channel is armed when it is read.
            let before = self.moved.replace((id, to)).filter(|(_, before)| !self.disarmed.contains(before));
            before.into_iter().for_each(|(_, before)| self.poller.arm(before, device));
        }
        Ok(())
    }

    /// Reads an event. The channel is armed first, so that later events are reported.
    pub(super) fn fetch<'d, D: Device>(
        &mut self,
        device: &'d mut D,
        on: ChannelKey,
        child: IdKey,
    ) -> Result<Option<RawEvent<&'d [u8]>>, Errno>
    where
        P: Poller<D>,
    {
        if !self.disarmed.is_empty() || self.moved.is_some() {
            self.arm_before_read(device, on);
        }
        device.fetch(on, child)
    }

    #[cold]
    fn arm_before_read<D: Device>(&mut self, device: &D, on: ChannelKey)
    where
        P: Poller<D>,
    {
        if let Some(at) = self.disarmed.iter().position(|&disarmed| disarmed == on) {
            self.disarmed.swap_remove(at);
            self.poller.arm(on, device);
        }
        if self.moved.is_some_and(|(_, to)| to == on) {
            self.moved = None;
            self.poller.arm(on, device);
        }
    }

    /// Disarms a channel that has events and is not read now: the core has no room for it, or it is paused.
    pub(super) fn leave_unread<D: Device>(&mut self, device: &D, channel: ChannelKey)
    where
        P: Poller<D>,
    {
        if self.poller.is_level_triggered() && !self.disarmed.contains(&channel) {
            self.poller.disarm(channel, device);
            self.disarmed.push(channel);
        }
    }

    /// Removes a channel that is closed or released next.
    pub(super) fn remove<D: Device>(&mut self, device: &D, channel: ChannelKey)
    where
        P: Poller<D>,
    {
        self.disarmed.retain(|&disarmed| disarmed != channel);
        self.moved = self.moved.filter(|&(_, to)| to != channel);
        self.poller.remove(channel, device);
    }

    /// Adopts a released id and registers its channel.
    pub(super) fn adopt<D: Device>(
        &mut self,
        device: &mut D,
        id: IdKey,
        channel: ChannelKey,
        handle: D::Handle,
    ) -> Outcome
    where
        P: Poller<D>,
    {
        device.adopt(id, channel, handle)?;
        self.poller.add(channel, device).inspect_err(|_| {
            // The id must not stay in the device. If the destroy fails too, nothing more can be done.
            let _ = device.call(&Call::Destroy { id }, &[]);
            let _ = device.call(&Call::CloseChannel { channel }, &[]);
        })
    }
}
