//! Events out, and the acks that come back.

use super::Core;
use crate::error::Refused;
use crate::event::{CmEvent, Event, EventKind, Receipt};
use crate::id::Id;
use crate::key::ChannelKey;
use crate::mail::{Letter, Stored};
use crate::request::Acks;

impl Core {
    /// The next event of a channel, in the order in which the device reported them; `None` when there is none, or while
    /// a call that migrates its id is under way.
    #[inline]
    pub fn poll_event(&mut self, on: ChannelKey) -> Option<Event> {
        let channel = self.channels.get(on)?;
        let (letter, acks) = (channel.mail.head()?, channel.acks);
        self.deliver(on, letter, acks)
    }

    fn deliver(&mut self, on: ChannelKey, letter: Letter, acks: Acks) -> Option<Event> {
        let first = self.mail.get(letter);
        let (owner, id) = (first.owner(), first.id);
        let is_moving = |key| self.ids.get(key).is_some_and(Id::is_moving);
        if is_moving(owner) || (id != owner && is_moving(id)) {
            return None;
        }
        let is_owed = first.of_device() && acks == Acks::Explicit;
        let receipt = if is_owed { self.owe(Receipt { owner, group: first.group }) } else { None };
        self.detach(letter, on);
        let stored = self.mail.take(letter);
        let event = Event { receipt, ..self.to_event(&stored) };
        self.mail.discard(stored.enclosed);
        Some(event)
    }

    /// Counts an ack that the application owes, if the owner still lives.
    fn owe(&mut self, receipt: Receipt) -> Option<Receipt> {
        self.ids.get_mut(receipt.owner)?.owed += 1;
        if let Some(group) = receipt.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed += 1;
        }
        Some(receipt)
    }

    /// The application is done with an event (rdma_ack_cm_event(3)). A migration or destruction that waited for the
    /// last ack of its id goes on, or a leave that waited for the last one of its group.
    ///
    /// # Errors
    /// [`Refused::NothingOwed`] for a receipt of another core.
    pub fn ack(&mut self, receipt: Receipt) -> Result<(), Refused> {
        let owner = self.ids.get_mut(receipt.owner).filter(|id| id.owed > 0).ok_or(Refused::NothingOwed)?;
        owner.owed -= 1;
        let goes_on = owner.owed == 0 && owner.is_held_up();
        if let Some(group) = receipt.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed = group.owed.saturating_sub(1);
            self.continue_leave(receipt.owner);
        }
        if goes_on {
            self.continue_migrate(receipt.owner);
            self.continue_destroy(receipt.owner);
            self.settle(receipt.owner);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn to_event(&self, stored: &Stored) -> Event {
        let enclosure = self.mail.enclosure(stored.enclosed);
        Event {
            id: stored.id,
            listener: stored.listener,
            kind: stored.kind,
            status: stored.status,
            param: stored.param,
            datagram: enclosure.datagram,
            group: stored.group,
            private_data: enclosure.private_data.clone(),
            receipt: None,
        }
    }

    /// Puts an event at the end of a channel, in the name of its owner if that still lives.
    pub(super) fn post(&mut self, stored: Stored, on: ChannelKey) -> Letter {
        let owner = stored.owner();
        let letter = self.mail.store(stored);
        if let Some(id) = self.ids.get_mut(owner) {
            self.mail.own(&mut id.mail, letter);
        }
        if let Some(channel) = self.channels.get_mut(on) {
            self.mail.append(&mut channel.mail, letter);
        }
        self.news += 1;
        letter
    }

    /// Takes an event off both of its lists, wherever it stands.
    pub(super) fn detach(&mut self, letter: Letter, from: ChannelKey) {
        let owner = self.mail.get(letter).owner();
        if let Some(channel) = self.channels.get_mut(from) {
            self.mail.unlink(&mut channel.mail, letter);
        }
        if let Some(id) = self.ids.get_mut(owner) {
            self.mail.disown(&mut id.mail, letter);
        }
    }

    /// The first undelivered event of an id that is of this kind.
    pub(super) fn first_of(&self, id: &Id, kind: CmEvent) -> Option<Letter> {
        self.mail.owned(&id.mail).find(|&letter| self.mail.get(letter).kind == EventKind::Cm(kind))
    }

    /// Takes an event away for good.
    pub(super) fn withdraw(&mut self, letter: Letter, from: ChannelKey) -> Stored {
        self.detach(letter, from);
        let stored = self.mail.take(letter);
        self.mail.discard(stored.enclosed);
        stored
    }
}
