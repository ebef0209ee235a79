//! Events out, and the acks that come back.

use super::Core;
use crate::error::NotAcked;
use crate::event::{CmEvent, Event, EventKind, Receipt};
use crate::id::Id;
use crate::key::ChannelKey;
use crate::mail::Letter;
use crate::request::Acks;
use crate::stored::Stored;

impl Core {
    /// The next event of a channel, in the order in which the device reported them; `None` when there is none, or while
    /// a call that migrates its id is under way.
    #[inline]
    pub fn poll_event(&mut self, on: ChannelKey) -> Option<Event> {
        if self.single.as_ref().is_some_and(|single| single.on == on) {
            return self.poll_short(on);
        }
        if self.mail.has_nodes() { self.poll_linked(on) } else { None }
    }

    #[inline(never)]
    fn poll_linked(&mut self, on: ChannelKey) -> Option<Event> {
        let channel = self.channels.get_mut(on)?;
        let letter = channel.mail.head()?;
        let first = self.mail.get(letter);
        let (key, group, is_request) = (first.owner(), first.group(), first.is_request());
        let is_owed = channel.acks == Acks::Explicit && first.of_device();
        let mut receipt = None;
        // Neither its list nor what it owes says anything of whether it is plain.
        match self.ids.get_untouched(key) {
            Some(owner) if owner.is_moving() => return None,
            Some(owner) => {
                if is_owed && !owner.waived {
                    owner.owed += 1;
                    receipt = Some(Receipt { owner: key, group });
                    if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
                        group.owed += 1;
                    }
                }
                owner.requests -= u16::from(is_request);
                self.mail.disown(&mut owner.mail, letter);
            }
            None => {}
        }
        self.mail.unlink(&mut channel.mail, letter);
        if self.mail.get(letter).enclosed.is_some() {
            return Some(self.open(letter, receipt));
        }
        let event = Some(self.mail.get(letter).bare(receipt));
        self.mail.take(letter);
        event
    }

    /// An event with what is enclosed, which is kept no longer.
    #[inline(never)]
    fn open(&mut self, letter: Letter, receipt: Option<Receipt>) -> Event {
        let stored = self.mail.take(letter);
        let mut event = stored.bare(receipt);
        self.mail.enclose(stored.enclosed, &mut event);
        self.mail.discard(stored.enclosed);
        event
    }

    /// The application is done with an event (rdma_ack_cm_event(3)). A migration or destruction that waited for the
    /// last ack of its id goes on, or a leave that waited for the last one of its group.
    ///
    /// # Errors
    /// [`NotAcked`] with the receipt again, if it is of another core or its id is gone. Nothing has changed.
    #[inline(always)]
    pub fn ack(&mut self, receipt: Receipt) -> Result<(), NotAcked> {
        let Some(owner) = self.ids.get_untouched(receipt.owner) else { return Err(NotAcked { receipt }) };
        let Some(owed) = owner.owed.checked_sub(1) else { return Err(NotAcked { receipt }) };
        owner.owed = owed;
        // Nothing waits for the acks of a plain id.
        if !owner.is_plain() && (receipt.group.is_some() || owner.is_held_up()) {
            self.acked(receipt);
        }
        Ok(())
    }

    /// What an ack was waited for.
    #[inline(never)]
    pub(super) fn acked(&mut self, receipt: Receipt) {
        if let Some(group) = receipt.group.and_then(|group| self.groups.get_mut(group)) {
            group.owed = group.owed.saturating_sub(1);
            self.continue_leave(receipt.owner);
        }
        self.continue_migrate(receipt.owner);
        self.continue_destroy(receipt.owner);
    }

    /// An event that stays where it is.
    pub(super) fn to_event(&self, stored: &Stored) -> Event {
        let mut event = stored.bare(None);
        self.mail.enclose(stored.enclosed, &mut event);
        event
    }

    /// Puts an event at the end of a channel, in the name of its owner if that still lives.
    #[inline]
    pub(super) fn post(&mut self, stored: Stored, on: ChannelKey) -> Letter {
        self.news += 1;
        self.link_single();
        self.link(stored, on)
    }

    pub(super) fn link(&mut self, stored: Stored, on: ChannelKey) -> Letter {
        // Its list says nothing of whether it is plain.
        let owner = self.ids.get_untouched(stored.owner()).map(|id| &mut id.mail);
        let channel = self.channels.get_mut(on).map(|channel| &mut channel.mail);
        self.mail.push(stored, channel, owner)
    }

    /// Takes an event off both of its lists, wherever it stands.
    pub(super) fn detach(&mut self, letter: Letter, from: ChannelKey) {
        let (owner, is_request) = (self.mail.get(letter).owner(), self.mail.get(letter).is_request());
        if let Some(channel) = self.channels.get_mut(from) {
            self.mail.unlink(&mut channel.mail, letter);
        }
        if let Some(id) = self.ids.get_mut(owner) {
            id.requests -= u16::from(is_request);
            self.mail.disown(&mut id.mail, letter);
        }
    }

    /// Whether an event of this kind of an id is undelivered.
    pub(super) fn has_undelivered(&self, id: &Id, kind: EventKind) -> bool {
        self.mail.owned(&id.mail).any(|letter| self.mail.get(letter).kind == kind)
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
