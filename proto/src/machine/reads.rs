//! When channels are read: those that may have an event, those that wait for room, paused and failed ones.

use super::Core;
use crate::channel::{Channel, Place};
use crate::error::Refused;
use crate::id::Id;
use crate::key::{ChannelKey, IdKey};
use crate::request_kind::RequestKind;
use crate::table;
use crate::time::Time;

/// Where the next event of a channel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextOf {
    /// One is undelivered.
    Event,
    /// The channel may have one and is to be read.
    Read,
    Nothing,
}

impl Core {
    /// Reports that a channel may have an event to read. [`poll_readable`](Core::poll_readable) returns it once;
    /// further reports before that have no effect, nor have those of a channel that is paused or has failed: its
    /// [`resume_channel`](Core::resume_channel) has the effect of a report.
    pub fn handle_readable(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key).filter(|channel| channel.is_read()) else { return };
        if core::mem::replace(&mut channel.place, Place::ToRead) == Place::None {
            if channel.private { &mut self.private_readable } else { &mut self.readable }.push_back(key);
        }
    }

    /// Returns the next channel to read: one that was reported by [`handle_readable`](Core::handle_readable), the channel of
    /// an id whose leave of a group has failed, or the new channel of a migrated id. The kernel moves pending events to that
    /// channel without waking its poller (`ucma_migrate_id`); librdmacm may have ended the id of the leave, which wakes no
    /// poller either. The id of a request that is not accepted has no pending events (`ucma_event_handler`), so its new
    /// channel is not read. Private channels come first.
    pub fn poll_readable(&mut self) -> Option<ChannelKey> {
        let key = self.next_private().or_else(|| self.readable.front().copied())?;
        self.unmark(key);
        Some(key)
    }

    /// Begins a read of a channel: it is not marked as readable any more. Returns the key for a child if the core takes an
    /// event of this channel, see [`wants_event`](Core::wants_event).
    pub fn begin_read(&mut self, key: ChannelKey) -> Option<IdKey> {
        self.unmark(key);
        self.wants_event(key)
    }

    /// Returns the key for a child if the core takes another event of this channel now; `None` if the event must stay
    /// in the kernel. The result is `None`
    ///
    /// - for the channel of a listener, as the next event may be a request: while the number of its untaken requests
    ///   is at its backlog ([`Limits::BACKLOG_MAX`](crate::Limits::BACKLOG_MAX)), or while no more ids or events are free than the
    ///   [`Limits`](crate::Limits) reserve;
    /// - for any other channel at its own limit on events; at the limit on all events, unless the channel has no
    ///   untaken event;
    /// - for a channel that is [paused](Core::pause_channel) or that has [failed](Core::handle_unreadable).
    ///
    /// The key is valid only for the next [`handle_event`](Core::handle_event), without a request in between, because a
    /// request may use the key.
    #[inline]
    #[must_use]
    pub fn wants_event(&self, on: ChannelKey) -> Option<IdKey> {
        let channel = self.channels.get(on).filter(|channel| channel.is_read())?;
        // A listener that is not on this channel yet gets no requests on it.
        let has_room = match self.listener_on(channel).filter(|listener| listener.device_channel == on) {
            Some(listener) => self.has_room_for_request(listener),
            None => self.has_room_for_event(channel),
        };
        if has_room { self.ids.next_key() } else { None }
    }

    fn has_room_for_request(&self, listener: &Id) -> bool {
        let has_more = |used: usize, reserved: u32, limit: u32| used < (limit - reserved.min(limit / 2)) as usize;
        listener.requests < listener.backlog
            && has_more(self.ids.len(), self.limits.reserved_ids, self.limits.ids)
            && has_more(self.undelivered as usize, self.limits.reserved_events, self.limits.events)
    }

    fn has_room_for_event(&self, channel: &Channel) -> bool {
        let is_within = channel.counted < self.limits.channel_events && self.undelivered < self.limits.events;
        channel.counted == 0 || is_within
    }

    pub(super) fn unmark(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let is_parked = core::mem::take(&mut channel.parked);
        let queue = if channel.private { &mut self.private_readable } else { &mut self.readable };
        if queue.front() == Some(&key) {
            channel.place = Place::None;
            queue.pop_front();
            while let Some(channel) = queue.front().and_then(|&first| self.channels.get_mut(first)) {
                if channel.place == Place::ToRead {
                    break;
                }
                channel.place = Place::None;
                queue.pop_front();
            }
        } else if channel.place == Place::ToRead {
            // It keeps its place, because a removal would look at all of them.
            channel.place = Place::Skipped;
        }
        if is_parked {
            self.parked.retain(|&other| other != key);
        }
    }

    /// Removes a channel that closes from the queue of channels to read.
    pub(super) fn unqueue(&mut self, key: ChannelKey) {
        self.unmark(key);
        if self.channels.get(key).is_some_and(|channel| channel.place != Place::None) {
            self.readable.retain(|&other| other != key);
            self.private_readable.retain(|&other| other != key);
        }
    }

    /// Returns the next private channel to read. No application takes its events from it, so a driver reads it in each turn.
    pub(crate) fn next_private(&self) -> Option<ChannelKey> {
        self.private_readable.front().copied()
    }

    /// Whether an application can take an event, or may after a read: one of its channels has an undelivered event or is
    /// marked as readable.
    pub(crate) fn has_deliverable(&self) -> bool {
        self.deliverable > 0 || !self.readable.is_empty()
    }

    /// Returns the first of the application's channels to read, if the core takes no event of it. Without undelivered events
    /// each of them has room.
    pub(crate) fn unwanted(&self) -> Option<ChannelKey> {
        let first = if self.deliverable > 0 { self.readable.front().copied() } else { None };
        first.filter(|&key| self.wants_event(key).is_none())
    }

    /// Returns what the application's next event of a channel needs.
    pub(crate) fn next_of(&self, key: ChannelKey) -> NextOf {
        match self.channels.get(key) {
            Some(channel) if !channel.events.is_empty() => NextOf::Event,
            Some(channel) if channel.place == Place::ToRead => NextOf::Read,
            Some(_) | None => NextOf::Nothing,
        }
    }

    /// Whether a channel has an event that can be taken without a read, or is marked as readable.
    #[must_use]
    pub fn may_have_event(&self, channel: ChannelKey) -> bool {
        self.next_of(channel) != NextOf::Nothing
    }

    /// Reports that a channel may have an event to read, for which there is no room: [`wants_event`](Core::wants_event)
    /// returned `None`. The channel is to be read again as soon as there is room, that is after an event is taken or an
    /// id is gone. A channel that is paused or has failed waits for its [`resume_channel`](Core::resume_channel)
    /// instead.
    pub fn wait_for_room(&mut self, key: ChannelKey) {
        let park = |channel: &mut Channel| channel.is_read() && !core::mem::replace(&mut channel.parked, true);
        if self.wants_event(key).is_none() && self.channels.get_mut(key).is_some_and(park) {
            self.parked.push(key);
        }
    }

    /// Marks channels as readable that have waited for room, if there is room now. Called after an event is taken, an id is
    /// gone or a listener listens no more.
    pub(super) fn unpark(&mut self) {
        if !self.parked.is_empty() {
            self.unpark_some();
        }
    }

    #[cold]
    fn unpark_some(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.parked.get(at) {
            if self.wants_event(key).is_none() {
                at += 1;
                continue;
            }
            self.parked.swap_remove(at);
            if let Some(channel) = self.channels.get_mut(key) {
                channel.parked = false;
            }
            self.handle_readable(key);
        }
    }

    /// Whether a private channel is to be read or a child to be destroyed.
    pub(crate) fn has_private_work(&self) -> bool {
        !(self.private_readable.is_empty() && self.children.is_empty())
    }

    /// Returns the number of private channels that are marked as readable, or that were and keep their place in the queue.
    pub(crate) fn private_readable(&self) -> usize {
        self.private_readable.len()
    }

    /// Stops reading a channel: its events stay in the kernel until [`resume_channel`](Core::resume_channel). Events
    /// that were read before can still be taken, but are no reason to run the application; calls are still made. A request that waits for an event on the
    /// channel waits until the resume or its deadline. Any open channel can be paused, including those of listeners and
    /// of ids in synchronous mode ([`Core::device_channel`]). A second pause has no effect. The pause ends with the
    /// channel: after [`release`](Core::release) the next core reads it.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`].
    pub fn pause_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.set_paused(key, true)?;
        self.unmark(key);
        Ok(())
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
    /// gone or counts as failed. It counts as failed after [`Limits::READ_FAILURES_MAX`](crate::Limits::READ_FAILURES_MAX) failures
    /// without an event in between, and is not read any more.
    ///
    /// The ids on a failed channel stay alive. Their requests that wait for an event end now, as at a deadline.
    /// [`begin`](Core::begin) refuses new requests that would wait for an event
    /// ([`RefuseReason::ChannelFailed`](crate::RefuseReason)). The ids can be destroyed. On iWARP, if a connect is not
    /// answered, a destroy fails with ETIMEDOUT, and `DestroyNow` ends the id. They can also be migrated to another
    /// channel, where their unread events are read from the kernel. [`resume_channel`](Core::resume_channel) tries the
    /// channel again.
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
        self.unmark(key);
        self.end_waits_on(key);
        false
    }

    /// Makes all requests that wait for an event of this channel due at once; of destructions those that wait for the
    /// answer to a connect, and for no acks.
    fn end_waits_on(&mut self, key: ChannelKey) {
        for slot in 0..self.ids.slots() {
            let id = self.ids.key_at(slot).filter(|id| self.device_channel(*id) == Some(key));
            id.into_iter().for_each(|id| self.end_waits_of(id));
        }
    }

    /// Makes the requests of an id that wait for an event due at once.
    pub(super) fn end_waits_of(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get(key) {
            let operation = table::operation(id.state).is_some_and(|kind| kind != RequestKind::Destroy || id.owed == 0);
            if operation || id.waits_for() == Some(RequestKind::GetRequest) {
                self.set_deadline(key, Time::ZERO);
            }
            self.make_joins_due(key);
        }
    }

    fn existing_channel(&mut self, key: ChannelKey) -> Result<&mut Channel, Refused> {
        self.channels.get_mut(key).filter(|channel| !channel.closing).ok_or(Refused::NoSuchChannel { channel: key })
    }
}
