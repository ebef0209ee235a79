//! Event channels: opened and closed by the application, or private to an id in synchronous mode or to a listener.

use alloc::vec::Vec;

use super::Core;
use crate::call::Call;
use crate::channel::{Channel, Phase};
use crate::error::Refused;
use crate::key::{ChannelKey, IdKey, Target};
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::table;
use crate::time::Time;

impl Core {
    /// Opens an event channel (rdma_create_event_channel(3)).
    ///
    /// # Errors
    /// [`Refused::Full`] at the limit on channels.
    pub fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Refused> {
        let channel = self.insert_channel(acks, false)?;
        self.call_for_channel(channel, Call::OpenChannel { channel });
        Ok(channel)
    }

    /// Closes an event channel (rdma_destroy_event_channel(3)). The function of librdmacm would destroy the ids on the
    /// channel in the kernel, and leave dangling structures in the library. Here all ids must leave the channel first.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`]; [`Refused::ChannelInUse`] while the channel is being opened, has ids or untaken
    /// events, or belongs to an id in synchronous mode or to a listener.
    pub fn close_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.usable_channel(key)?;
        match self.channels.get(key) {
            Some(channel) if channel.phase == Phase::Open && channel.ids == 0 && channel.pending.head().is_none() => {
                self.close(key);
                Ok(())
            }
            Some(_) | None => Err(Refused::ChannelInUse { channel: key }),
        }
    }

    /// Stops reading a channel: its events stay in the kernel until [`resume_channel`](Core::resume_channel). Events
    /// that were read before are still delivered, and calls are still made. A request that waits for an event on the
    /// channel waits until the resume or its deadline. Any open channel can be paused, including those of listeners and
    /// of ids in synchronous mode ([`Core::device_channel`]). A second pause has no effect. The pause ends with the
    /// channel: after [`release`](Core::release) the next core reads it.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`].
    pub fn pause_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.existing_channel(key)?.paused = true;
        Ok(())
    }

    /// Ends a [pause](Core::pause_channel), or the failure of a channel that has [failed](Core::handle_unreadable).
    /// The channel is read at once, because an edge-triggered poller does not report earlier events again.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`].
    pub fn resume_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        let channel = self.existing_channel(key)?;
        (channel.paused, channel.failures) = (false, 0);
        self.handle_readable(key);
        Ok(())
    }

    /// Reports that a read of a channel failed. Returns true if the channel is to be read again:
    /// [`poll_readable`](Core::poll_readable) returns it once more, after all others. Returns false if the channel is
    /// gone or counts as failed. It counts as failed after [`READ_FAILURES_MAX`](crate::READ_FAILURES_MAX) failures
    /// without an event in between, and is not read any more.
    ///
    /// The ids on a failed channel stay alive. Their requests that wait for an event end now, as at a deadline.
    /// [`submit`](Core::submit) refuses new requests that would wait for an event
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

    /// Called when an id has come to this channel or waits again: if the channel has failed, the id's waiting
    /// requests are due at once.
    pub(super) fn end_waits_on_failed(&mut self, key: IdKey, on: ChannelKey) {
        if self.has_failed(on) {
            self.end_waits_of(key);
        }
    }

    fn end_waits_of(&mut self, key: IdKey) {
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
        let is_there = |channel: &&mut Channel| matches!(channel.phase, Phase::Opening | Phase::Open);
        self.channels.get_mut(key).filter(is_there).ok_or(Refused::NoSuchChannel { channel: key })
    }

    /// Checks whether ids may be put on a channel. Returns its key.
    pub(super) fn usable_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        match self.channels.get(key) {
            Some(channel) if channel.private => Err(Refused::ChannelInUse { channel: key }),
            Some(channel) if matches!(channel.phase, Phase::Opening | Phase::Open) => Ok(key),
            Some(_) | None => Err(Refused::NoSuchChannel { channel: key }),
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

    pub(super) fn insert_channel(&mut self, acks: Acks, private: bool) -> Result<ChannelKey, Refused> {
        self.channels.insert(Channel::new(acks, private)).ok_or(Refused::Full("channels"))
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
        if channel.ids > 0 {
            return;
        }
        match (channel.phase, channel.private) {
            (Phase::Open, true) => self.close(key),
            // The channel was never open at the device.
            (Phase::Opening, true) | (Phase::Broken, _) => self.remove_channel(key),
            (Phase::Open | Phase::Opening, false) | (Phase::Closing, _) => {}
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

    /// Removes a channel that is gone, or that could not be opened.
    pub(super) fn remove_channel(&mut self, key: ChannelKey) {
        self.discard_left(key);
        let gone = self.channels.remove(key).map(|gone| (gone.readable, gone.parked));
        let (readable, parked) = gone.unwrap_or_default();
        if readable {
            self.readable.retain(|&sync_state| sync_state != key);
            self.queued -= 1;
        }
        if parked {
            self.parked.retain(|&sync_state| sync_state != key);
            self.queued -= 1;
        }
    }

    /// Closes a channel and discards its events, which cannot be taken any more. Only a private channel can have events
    /// then.
    fn close(&mut self, key: ChannelKey) {
        self.discard_left(key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.phase = Phase::Closing;
        }
        self.call_for_channel(key, Call::CloseChannel { channel: key });
    }

    fn discard_left(&mut self, key: ChannelKey) {
        while let Some(event_ref) = self.channels.get(key).and_then(|channel| channel.pending.head()) {
            self.withdraw(event_ref, key);
            self.counters.discarded += 1;
        }
    }

    fn call_for_channel(&mut self, key: ChannelKey, call: Call) {
        let token = self.token(Target::Channel(key));
        if let Some(channel) = self.channels.get_mut(key) {
            channel.call = Some(token.number);
        }
        self.calls.push_back((token, call));
        self.queued += 1;
    }
}
