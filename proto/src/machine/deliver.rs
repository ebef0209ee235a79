//! Undelivered events, their delivery, and their acks. Each channel has one queue.

use super::Core;
use super::admit::{Admission, Admitted};
use super::next::Due;
use crate::cm_event::CmEvent;
use crate::error::AckError;
use crate::event::{AckToken, Event, EventKind, RawEvent};
use crate::id::Rare;
use crate::key::{ChannelKey, IdKey};
use crate::request::Acks;
use crate::state::State;
use crate::stored::{Of, Stored};

impl Core {
    /// Returns the next event of a channel, in the order of the device. `None` if there is none.
    pub fn poll_event(&mut self, on: ChannelKey) -> Option<Event> {
        let channel = self.channels.get_mut(on)?;
        let (stored, acks) = (channel.events.pop_front()?, channel.acks);
        self.taken(on, &stored);
        let ack_token = if stored.of_device() { self.owe(stored.of, acks) } else { None };
        // Filled in place: an event is large.
        let mut event = Some(stored.bare(ack_token));
        if let (Some(data), Some(event)) = (stored.data, &mut event) {
            self.data.fill(data, event);
            self.data.discard(stored.data);
        }
        event
    }

    /// Delivers an event of the device on the channel `on`: at once, if it is the next one of that channel and the
    /// application asks for it (`to`). Otherwise it waits in the queue.
    pub(super) fn deliver(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>, to: Option<ChannelKey>) -> Admitted {
        match self.channels.get(on) {
            Some(channel) if to == Some(on) && channel.events.is_empty() => {
                let (of, acks) = (Of::event(raw), channel.acks);
                Admitted::Next(of, self.owe(of, acks))
            }
            Some(_) | None => {
                let stored = self.store(raw);
                self.post(on, stored);
                Admitted::Other(Ok(Admission::of(raw)))
            }
        }
    }

    /// Makes an event one that can wait.
    pub(super) fn store(&mut self, raw: &RawEvent<&[u8]>) -> Stored {
        Stored::of(raw, Of::event(raw), self.data.keep(raw))
    }

    /// Counts the ack that the application owes for an event of the device.
    fn owe(&mut self, of: Of, acks: Acks) -> Option<AckToken> {
        let ack_token = self.ids.get_mut(of.owner())?.owe(of, acks)?;
        if let Some(group) = of.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed += 1;
        }
        Some(ack_token)
    }

    /// Acknowledges an event (rdma_ack_cm_event(3)). After the last ack of an id, the call of a migration or destruction
    /// that waited for it is [due](Core::next); after the last ack of a group, that of a leave.
    ///
    /// # Errors
    /// [`AckError`] with the ack token, if the token is of another core or its id is gone. Nothing has changed.
    pub fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        let Some(owner) = self.ids.get_mut(ack_token.owner) else { return Err(AckError { ack_token }) };
        let Some(owed) = owner.owed.checked_sub(1) else { return Err(AckError { ack_token }) };
        owner.owed = owed;
        if ack_token.group.is_some() || owner.rare.contains(Rare::MOVES) || owner.state == State::Destroying {
            self.acked(ack_token);
        }
        Ok(())
    }

    /// Continues the requests that waited for an ack.
    #[cold]
    fn acked(&mut self, ack_token: AckToken) {
        let AckToken { owner, group } = ack_token;
        if let Some((key, group)) = group.and_then(|key| Some((key, self.groups.get_mut(key)?))) {
            group.owed = group.owed.saturating_sub(1);
            if group.leaving && group.owed == 0 {
                self.due.push_back(Due::Leave(owner, key));
            }
        }
        if self.ids.get(owner).is_some_and(|id| id.rare.contains(Rare::MOVES) && id.owed == 0) {
            self.due.push_back(Due::Migrate(owner));
        }
        self.continue_destroy(owner);
    }

    /// Puts an event at the end of a channel's queue, to be delivered.
    pub(super) fn post(&mut self, on: ChannelKey, stored: Stored) {
        let Some(channel) = self.channels.get_mut(on) else { return };
        let (of_device, is_request) = (stored.of_device(), stored.is_request());
        self.undelivered += u32::from(of_device);
        channel.counted += u32::from(of_device && !is_request);
        if let Some(id) = self.ids.get_mut(stored.of.owner()) {
            id.undelivered += 1;
            id.requests += u16::from(is_request);
        }
        channel.events.push_back(stored);
        // Nobody has to take the events of an id in synchronous mode, so each is reported once.
        self.activity += u64::from(channel.private);
        self.deliverable += usize::from(channel.is_taken_from());
    }

    /// Removes the first undelivered event of an id that is such an event. Its data stays.
    pub(super) fn take_event_of(&mut self, key: IdKey, is_it: impl Fn(&Stored) -> bool) -> Option<Stored> {
        let on = self.ids.get(key).filter(|id| id.undelivered > 0)?.channel;
        let events = &mut self.channels.get_mut(on)?.events;
        let at = events.iter().position(|it| it.of.owner() == key && is_it(it))?;
        let stored = events.remove(at)?;
        self.taken(on, &stored);
        Some(stored)
    }

    /// Discards an event that was taken out of its queue.
    pub(super) fn discard(&mut self, stored: &Stored) {
        self.counters.discarded += 1;
        self.data.discard(stored.data);
    }

    /// Counts an event that was taken out of the queue of a channel.
    pub(super) fn taken(&mut self, on: ChannelKey, stored: &Stored) {
        let Some(channel) = self.channels.get_mut(on) else { return };
        self.deliverable -= usize::from(channel.is_taken_from());
        self.undelivered -= u32::from(stored.of_device());
        channel.counted -= u32::from(stored.of_channel());
        // The end of a destruction is delivered after its id.
        if let Some(id) = self.ids.get_mut(stored.of.owner()) {
            id.undelivered -= 1;
            id.requests -= u16::from(stored.is_request());
        }
        self.unpark();
    }

    /// Removes the first undelivered event of this kind of an id.
    pub(super) fn take_first(&mut self, key: IdKey, kind: CmEvent) -> Option<Stored> {
        self.take_event_of(key, |stored| stored.kind == EventKind::Cm(kind))
    }

    /// Whether an id has an undelivered event of this kind.
    pub(super) fn has_undelivered(&self, key: IdKey, kind: EventKind) -> bool {
        let is_it = |stored: &Stored| stored.kind == kind && stored.of.owner() == key;
        let channel = self.ids.get(key).filter(|id| id.undelivered > 0).and_then(|id| self.channels.get(id.channel));
        channel.is_some_and(|channel| channel.events.iter().any(is_it))
    }
}
