//! Delivery of events, and their acks.

use super::Core;
use crate::cm_event::CmEvent;
use crate::error::AckError;
use crate::event::{AckToken, Event, EventKind};
use crate::id::Id;
use crate::key::ChannelKey;
use crate::request::Acks;
use crate::slab_index::EventRef;
use crate::stored::Stored;

impl Core {
    /// Returns the next event of a channel, in the order of the device. `None` if there is none, or while a call that
    /// migrates its id is under way.
    #[inline]
    pub fn poll_event(&mut self, on: ChannelKey) -> Option<Event> {
        if self.single.as_ref().is_some_and(|single| single.on == on) {
            return self.poll_short(on);
        }
        if self.pending.has_nodes() { self.poll_linked(on) } else { None }
    }

    #[inline(never)]
    fn poll_linked(&mut self, on: ChannelKey) -> Option<Event> {
        let channel = self.channels.get_mut(on)?;
        let event_ref = channel.pending.head()?;
        let first = self.pending.get(event_ref);
        let (key, group, is_request) = (first.owner(), first.group(), first.is_request());
        let is_owed = channel.acks == Acks::Explicit && first.of_device();
        let mut ack_token = None;
        // Whether an id is plain depends neither on its list nor on its owed acks.
        match self.ids.get_untouched(key) {
            Some(owner) if owner.is_moving() => return None,
            Some(owner) => {
                if is_owed && !owner.waived {
                    owner.owed += 1;
                    ack_token = Some(AckToken { owner: key, group });
                    if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
                        group.owed += 1;
                    }
                }
                owner.requests -= u16::from(is_request);
                self.pending.unlink_owner(&mut owner.pending, event_ref);
            }
            None => {}
        }
        self.pending.unlink(&mut channel.pending, event_ref);
        if self.pending.get(event_ref).private_data_ref.is_some() {
            return Some(self.open(event_ref, ack_token));
        }
        let event = Some(self.pending.get(event_ref).bare(ack_token));
        self.pending.take(event_ref);
        event
    }

    /// Removes an event from the slabs and returns it with its private data.
    #[inline(never)]
    fn open(&mut self, event_ref: EventRef, ack_token: Option<AckToken>) -> Event {
        let stored = self.pending.take(event_ref);
        let mut event = stored.bare(ack_token);
        self.pending.fill_private_data(stored.private_data_ref, &mut event);
        self.pending.discard(stored.private_data_ref);
        event
    }

    /// Acknowledges an event (rdma_ack_cm_event(3)). The last ack of an id continues a migration or destruction that
    /// waited for it; the last ack of a group continues a leave.
    ///
    /// # Errors
    /// [`AckError`] with the ack token, if the token is of another core or its id is gone. Nothing has changed.
    #[inline(always)]
    pub fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        let Some(owner) = self.ids.get_untouched(ack_token.owner) else { return Err(AckError { ack_token }) };
        let Some(owed) = owner.owed.checked_sub(1) else { return Err(AckError { ack_token }) };
        owner.owed = owed;
        // Nothing waits for the acks of a plain id.
        if !owner.is_plain() && (ack_token.group.is_some() || owner.is_held_up()) {
            self.acked(ack_token);
        }
        Ok(())
    }

    /// Continues the requests that waited for an ack.
    #[inline(never)]
    pub(super) fn acked(&mut self, ack_token: AckToken) {
        if let Some(group) = ack_token.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed = group.owed.saturating_sub(1);
            self.continue_leave(ack_token.owner);
        }
        self.continue_migrate(ack_token.owner);
        self.continue_destroy(ack_token.owner);
    }

    /// Returns a copy of an event that stays stored.
    pub(super) fn to_event(&self, stored: &Stored) -> Event {
        let mut event = stored.bare(None);
        self.pending.fill_private_data(stored.private_data_ref, &mut event);
        event
    }

    /// Puts an event at the end of a channel's list, and of its owner's list if the owner still exists.
    #[inline]
    pub(super) fn post(&mut self, stored: Stored, on: ChannelKey) -> EventRef {
        self.activity += 1;
        self.link_single();
        self.link(stored, on)
    }

    pub(super) fn link(&mut self, stored: Stored, on: ChannelKey) -> EventRef {
        // Whether an id is plain does not depend on its list.
        let owner = self.ids.get_untouched(stored.owner()).map(|id| &mut id.pending);
        let channel = self.channels.get_mut(on).map(|channel| &mut channel.pending);
        self.pending.push(stored, channel, owner)
    }

    /// Unlinks an event from both of its lists, at any position.
    pub(super) fn detach(&mut self, event_ref: EventRef, from: ChannelKey) {
        let (owner, is_request) = (self.pending.get(event_ref).owner(), self.pending.get(event_ref).is_request());
        if let Some(channel) = self.channels.get_mut(from) {
            self.pending.unlink(&mut channel.pending, event_ref);
        }
        if let Some(id) = self.ids.get_mut(owner) {
            id.requests -= u16::from(is_request);
            self.pending.unlink_owner(&mut id.pending, event_ref);
        }
    }

    /// Whether an id has an undelivered event of this kind.
    pub(super) fn has_undelivered(&self, id: &Id, kind: EventKind) -> bool {
        self.pending.events_of_owner(&id.pending).any(|event_ref| self.pending.get(event_ref).kind == kind)
    }

    /// Returns the first undelivered event of this kind of an id.
    pub(super) fn first_of(&self, id: &Id, kind: CmEvent) -> Option<EventRef> {
        self.pending
            .events_of_owner(&id.pending)
            .find(|&event_ref| self.pending.get(event_ref).kind == EventKind::Cm(kind))
    }

    /// Removes an undelivered event and its private data.
    pub(super) fn withdraw(&mut self, event_ref: EventRef, from: ChannelKey) -> Stored {
        self.detach(event_ref, from);
        let stored = self.pending.take(event_ref);
        self.pending.discard(stored.private_data_ref);
        stored
    }
}
