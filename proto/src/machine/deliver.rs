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
    pub fn poll_event(&mut self, on: ChannelKey) -> Option<Event> {
        let channel = self.channels.get(on)?;
        let (letter, acks) = (channel.mail.head()?, channel.acks);
        let first = self.mail.get(letter);
        if [first.owner(), first.id].into_iter().any(|key| self.ids.get(key).is_some_and(Id::is_moving)) {
            return None;
        }
        let stored = self.withdraw_keeping_data(letter, on);
        let mut event = self.to_event(&stored);
        self.mail.drop_data(stored.data);
        if stored.of_device()
            && acks == Acks::Explicit
            && let Some(owner) = self.ids.get_mut(stored.owner())
        {
            owner.owed += 1;
            if let Some(group) = stored.group.and_then(|group| self.groups.get_mut(group)) {
                group.owed += 1;
            }
            event.receipt = Some(Receipt { owner: stored.owner(), group: stored.group });
        }
        Some(event)
    }

    /// The application is done with an event (rdma_ack_cm_event(3)). A migration or destruction that waited for the
    /// last ack of its id goes on, or a leave that waited for the last one of its group.
    ///
    /// # Errors
    /// [`Refused::NothingOwed`] for a receipt of another core.
    pub fn ack(&mut self, receipt: Receipt) -> Result<(), Refused> {
        let owner = self.ids.get_mut(receipt.owner).filter(|id| id.owed > 0).ok_or(Refused::NothingOwed)?;
        owner.owed -= 1;
        let none_left = owner.owed == 0;
        if let Some(group) = receipt.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed = group.owed.saturating_sub(1);
            self.continue_leave(receipt.owner);
        }
        if none_left {
            self.continue_migrate(receipt.owner);
            self.continue_destroy(receipt.owner);
            self.settle(receipt.owner);
        }
        Ok(())
    }

    pub(super) fn to_event(&self, stored: &Stored) -> Event {
        Event {
            id: stored.id,
            listener: stored.listener,
            kind: stored.kind,
            status: stored.status,
            param: stored.param,
            datagram: stored.datagram,
            group: stored.group,
            private_data: crate::private_data::PrivateData::copy_of(self.mail.data(stored.data)),
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

    fn withdraw_keeping_data(&mut self, letter: Letter, from: ChannelKey) -> Stored {
        self.detach(letter, from);
        self.mail.take(letter)
    }

    /// Takes an event away for good.
    pub(super) fn withdraw(&mut self, letter: Letter, from: ChannelKey) -> Stored {
        let stored = self.withdraw_keeping_data(letter, from);
        self.mail.drop_data(stored.data);
        stored
    }
}
