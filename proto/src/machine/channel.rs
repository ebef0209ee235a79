//! Event channels: opened and closed by the application, or private to an id in synchronous mode or to a listener.

use alloc::vec::Vec;

use super::Core;
use super::due::Due;
use crate::channel::Channel;
use crate::error::Refused;
use crate::key::{ChannelKey, IdKey};
use crate::request_kind::RequestKind;
use crate::table;
use crate::time::Time;

impl Core {
    /// Stops reading a channel: its events stay in the kernel until [`resume_channel`](Core::resume_channel). Events
    /// that were read before can still be taken, but are no reason to run the application; calls are still made. A request that waits for an event on the
    /// channel waits until the resume or its deadline. Any open channel can be paused, including those of listeners and
    /// of ids in synchronous mode ([`Core::device_channel`]). A second pause has no effect. The pause ends with the
    /// channel: after [`release`](Core::release) the next core reads it.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`].
    pub fn pause_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.set_paused(key, true)
    }

    /// Ends a [pause](Core::pause_channel), or the failure of a channel that has [failed](Core::handle_unreadable).
    /// The channel is read at once, because an edge-triggered poller does not report earlier events again.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`].
    pub fn resume_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.set_paused(key, false)?;
        self.existing_channel(key)?.failures = 0;
        self.handle_readable(key);
        Ok(())
    }

    fn set_paused(&mut self, key: ChannelKey, paused: bool) -> Result<(), Refused> {
        let channel = self.existing_channel(key)?;
        let before = if channel.is_taken_from() { channel.events.len() } else { 0 };
        channel.paused = paused;
        let after = if channel.is_taken_from() { channel.events.len() } else { 0 };
        self.deliverable = self.deliverable - before + after;
        Ok(())
    }

    /// Reports that a read of a channel failed. Returns true if the channel is to be read again:
    /// [`poll_readable`](Core::poll_readable) returns it once more, after all others. Returns false if the channel is
    /// gone or counts as failed. It counts as failed after [`READ_FAILURES_MAX`](crate::READ_FAILURES_MAX) failures
    /// without an event in between, and is not read any more.
    ///
    /// The ids on a failed channel stay alive. Their requests that wait for an event end now, as at a deadline.
    /// [`begin`](Core::begin) refuses new requests that would wait for an event
    /// ([`RefuseReason::ChannelFailed`](crate::RefuseReason)). The ids can be destroyed. They can also be migrated to
    /// another channel, where their unread events are read from the kernel. [`resume_channel`](Core::resume_channel)
    /// tries the channel again.
    pub fn handle_unreadable(&mut self, key: ChannelKey) -> bool {
        let Some(channel) = self.channels.get_mut(key) else { return false };
        if channel.has_failed() {
            return false;
        }
        channel.failures += 1;
        self.activity += 1;
        if !channel.has_failed() {
            self.handle_readable(key);
            return true;
        }
        self.end_waits_on(key);
        false
    }

    /// Whether a channel has failed, see [`handle_unreadable`](Core::handle_unreadable).
    #[must_use]
    pub fn has_failed(&self, key: ChannelKey) -> bool {
        self.channels.get(key).is_some_and(Channel::has_failed)
    }

    /// Makes all requests that wait for an event of this channel due at once. Destructions are excluded, because they
    /// wait for acks.
    fn end_waits_on(&mut self, key: ChannelKey) {
        let on_it: Vec<_> = self.ids.iter().filter(|(_, id)| id.device_channel == key).map(|(key, _)| key).collect();
        on_it.into_iter().for_each(|key| self.end_waits_of(key));
    }

    /// Makes the requests of an id that wait for an event due at once.
    pub(super) fn end_waits_of(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get(key) {
            let operation = table::operation(id.state).is_some_and(|request_kind| request_kind != RequestKind::Destroy);
            if operation || id.waits_for() == Some(RequestKind::GetRequest) {
                self.set_deadline(key, Time::ZERO);
            }
            self.make_joins_due(key);
        }
    }

    /// Whether a channel is [paused](Core::pause_channel).
    #[must_use]
    pub fn is_paused(&self, key: ChannelKey) -> bool {
        self.channels.get(key).is_some_and(|channel| channel.paused)
    }

    fn existing_channel(&mut self, key: ChannelKey) -> Result<&mut Channel, Refused> {
        self.channels.get_mut(key).filter(|channel| !channel.closing).ok_or(Refused::NoSuchChannel { channel: key })
    }

    /// Checks whether ids may be put on a channel. Returns its key.
    pub(super) fn usable_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        match self.channels.get(key) {
            Some(channel) if channel.private => Err(Refused::ChannelInUse { channel: key }),
            Some(_) => Ok(key),
            None => Err(Refused::NoSuchChannel { channel: key }),
        }
    }

    /// As `usable_channel`, and refuses a channel that has failed.
    pub(super) fn target_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        let key = self.usable_channel(key)?;
        match self.channels.get(key) {
            Some(channel) if channel.has_failed() => Err(Refused::ChannelFailed { channel: key }),
            Some(_) | None => Ok(key),
        }
    }

    pub(super) fn join_channel(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.ids += 1;
        }
    }

    /// Removes an id from a channel's count; a private channel closes with its last id.
    pub(super) fn leave_channel(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.ids -= 1;
        if channel.ids == 0 && channel.private {
            channel.closing = true;
            self.due.push_back(Due::Close(key));
        }
    }

    /// Sets the channel that an id's events are delivered on, and the channel that the device reports the id on.
    pub(super) fn set_channels(&mut self, key: IdKey, channel: ChannelKey, device_channel: ChannelKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let (old_channel, old_device_channel) =
            (core::mem::replace(&mut id.channel, channel), core::mem::replace(&mut id.device_channel, device_channel));
        // The id joins the new channels first. Otherwise a channel that is both old and new would close in between.
        self.join_both(channel, device_channel);
        self.leave_both(old_channel, old_device_channel);
    }

    pub(super) fn join_both(&mut self, channel: ChannelKey, device_channel: ChannelKey) {
        self.join_channel(channel);
        if device_channel != channel {
            self.join_channel(device_channel);
        }
    }

    pub(super) fn leave_both(&mut self, channel: ChannelKey, device_channel: ChannelKey) {
        self.leave_channel(channel);
        if device_channel != channel {
            self.leave_channel(device_channel);
        }
    }

    /// Removes a channel that is closed. Only a private channel can have events then; they cannot be taken any more.
    pub(super) fn remove_channel(&mut self, key: ChannelKey) {
        self.unmark(key);
        let Some(gone) = self.channels.get(key) else { return };
        self.counters.discarded += gone.events.len() as u64;
        self.undelivered -= gone.events.iter().map(|stored| u32::from(stored.of_device())).sum::<u32>();
        let stored = gone.events.iter().chain(&gone.ended);
        stored.for_each(|stored| _ = self.data.take(stored.data));
        self.channels.remove(key);
        self.unpark();
    }
}
