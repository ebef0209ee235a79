//! The poller of a drive: which channels it waits for.

use crate::errno::Errno;
use crate::key::ChannelKey;
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
