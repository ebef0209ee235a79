//! Calls that do not follow from a request at once: after the last ack, after an event, and at the end of a channel.

use super::Core;
use super::begun::{Begun, Following, Part, done};
use crate::errno::Errno;
use crate::id::{Id, Rare};
use crate::key::{ChannelKey, GroupKey, IdKey};

/// A call that is due, if its reason still holds when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Due {
    /// A migration that has waited for acks.
    Migrate(IdKey),
    /// A leave that has waited for acks.
    Leave(IdKey, GroupKey),
    /// The second disconnect of a teardown.
    Disconnect(IdKey),
    /// A destruction that has waited for acks or for the answer to a connect.
    Destroy(IdKey),
    /// The closing of a private channel after its last id.
    Close(ChannelKey),
}

impl Core {
    /// Returns the next call that follows from earlier steps. `None` if there is none. Ask after each step.
    ///
    /// These calls end requests that have waited, by event, and free objects that nobody uses any more. So the result of
    /// their [`end`](Begun::end) is a success, or a [`Fault`](crate::Fault) for an object that the device could not free.
    #[allow(clippy::should_implement_trait, reason = "the call borrows the core, so it is no item of an iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<Begun<'_, 'static>> {
        while let Some(&due) = self.due.front() {
            if let Some(part) = self.prepare(due) {
                return Some(Begun::new(self, part));
            }
            self.due.pop_front();
        }
        None
    }

    /// Whether a call may follow from earlier steps.
    pub(crate) fn has_next(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the next call for the ids of undelivered requests to a listener that is destroyed. Their number is limited
    /// by its backlog ([`Limits::BACKLOG_MAX`](crate::Limits::BACKLOG_MAX)). A driver destroys some of them in each turn.
    pub fn next_child(&mut self) -> Option<Begun<'_, 'static>> {
        while let Some(&id) = self.children.front() {
            if self.is_to_be_destroyed(id) {
                return Some(Begun::new(self, Part::Destroy { id, asked: None }));
            }
            self.children.pop_front();
        }
        None
    }

    /// Returns what is to be done for an entry. `None` if there is no call to make.
    fn prepare(&mut self, due: Due) -> Option<Part<'static>> {
        match due {
            Due::Migrate(key) => self.prepare_migrate(key),
            Due::Leave(id, group) => {
                let is_due = self.groups.get(group).is_some_and(|group| group.leaving && group.owed == 0);
                is_due.then_some(Part::Leave { id, group, by_event: true })
            }
            Due::Disconnect(id) => {
                let is_due = self.ids.get(id).is_some_and(|id| id.rare.contains(Rare::DISCONNECT_DUE));
                is_due.then_some(Part::DisconnectAgain { id })
            }
            Due::Destroy(id) => self.is_to_be_destroyed(id).then_some(Part::Destroy { id, asked: None }),
            Due::Close(channel) => self.channels.contains(channel).then_some(Part::Close { channel, asked: false }),
        }
    }

    pub(super) fn is_to_be_destroyed(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(Id::is_to_go)
    }

    /// Continues a migration after the last ack.
    fn prepare_migrate(&mut self, key: IdKey) -> Option<Part<'static>> {
        let id = self.ids.get(key).filter(|id| id.rare.contains(Rare::MOVES) && id.owed == 0)?;
        let to = id.move_to;
        let refused = match to {
            // The channel may have been closed while the acks were outstanding.
            Some(to) if self.target_channel(to).is_err() => Errno::EBADF,
            to if self.moves_without_device(id) => {
                self.stop_waiting(key);
                self.redirect(key, to, true);
                return None;
            }
            to => match self.move_part(key, to, true) {
                None => Errno::ENOMEM,
                part => return part,
            },
        };
        self.stop_waiting(key);
        self.report_migrated(key, Err(refused));
        None
    }

    /// Removes the entry of a call that is made.
    pub(super) fn made(&mut self, due: Due) {
        if self.due.front() == Some(&due) {
            self.due.pop_front();
        }
    }

    /// Called after a DISCONNECTED or REJECTED of an id in a teardown. If both sides disconnect at the same moment, each
    /// kernel treats the other's request as the reply, and begins no time wait unless one of the sides also replies
    /// (`cm_dreq_handler`, `cm_send_drep_locked`). In all other cases the second disconnect has no effect.
    pub(super) fn disconnect_again(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key).filter(|id| !id.rare.contains(Rare::DISCONNECT_DUE)) {
            id.rare.insert(Rare::DISCONNECT_DUE);
            self.due.push_back(Due::Disconnect(key));
        }
    }

    /// Handles the return of the second disconnect. The teardown continues until its deadline, whatever the outcome.
    pub(super) fn disconnected_again(&mut self, key: IdKey) -> Following<'static> {
        self.made(Due::Disconnect(key));
        if let Some(id) = self.ids.get_mut(key) {
            id.rare.remove(Rare::DISCONNECT_DUE);
        }
        done()
    }
}
