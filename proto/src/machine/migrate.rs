//! Migration. An id first waits for the acks that the application owes. Then the device call is made. After its outcome
//! the id is on the new channel.

use super::Core;
use super::begun::{Arrival, By, Follow, Following, Part, Progress, done};
use super::next::Due;
use crate::call::Outcome;
use crate::error::Failure;
use crate::event::EventKind;
use crate::id::{Id, Rare, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::request_kind::RequestKind;
use crate::stored::{Stored, take_events};
use crate::time::Time;

impl Core {
    /// Returns the first part of a migration. `None` if it makes no call now.
    pub(super) fn migrate_part(&self, id: IdKey, to: Option<ChannelKey>) -> Option<Part<'static>> {
        self.ids.get(id).filter(|it| it.owed == 0 && !self.moves_without_device(it))?;
        self.move_part(id, to, false)
    }

    /// Returns the part that migrates an id at the device, or opens the channel for that. `None` at the limit on channels.
    pub(super) fn move_part(&self, id: IdKey, to: Option<ChannelKey>, by_event: bool) -> Option<Part<'static>> {
        let by = By::Migrate { by_event };
        match to {
            Some(channel) => Some(Part::Arrive(Arrival { id, channel, by })),
            None => self.open_for(id, by),
        }
    }

    /// Carries out a migration that makes no call now.
    pub(super) fn migrate_uncalled(
        &mut self,
        key: IdKey,
        to: Option<ChannelKey>,
        deadline: Time,
    ) -> Following<'static> {
        let Some(id) = self.ids.get_mut(key) else { return done() };
        if id.owed == 0 {
            self.redirect(key, to, false);
            return done();
        }
        id.rare.insert(Rare::MOVES);
        (id.move_to, id.move_deadline) = (to, deadline);
        self.arm(key);
        Ok(Follow::Done(Progress::WhenAcked))
    }

    /// Ends the wait of a migration for acks.
    pub(super) fn stop_waiting(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key).filter(|id| id.rare.contains(Rare::MOVES)) {
            id.rare.remove(Rare::MOVES);
            (id.move_to, id.move_deadline) = (None, Time::NEVER);
            self.arm(key);
        }
    }

    /// Handles the outcome of the device's migration.
    pub(super) fn migrated(
        &mut self,
        key: IdKey,
        to: ChannelKey,
        by_event: bool,
        outcome: Outcome,
    ) -> Following<'static> {
        // A private channel was opened for this migration and has counted the id.
        let is_counted = self.is_private(to);
        if let Err(errno) = outcome {
            if is_counted {
                self.leave_channel(to);
            }
            return self.migrate_failed(key, by_event, self.failure(key, RequestKind::Migrate.name(), errno));
        }
        self.end_wait(key, by_event);
        let is_request = self.ids.get(key).is_some_and(Id::is_request);
        self.apply_migrate(key, to, to, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.rare.set(Rare::SYNC, is_counted);
            // A device call migrates a listener only if its device is removed, and then it does not listen any more.
            id.rare.remove(Rare::LISTENS);
        }
        if is_counted {
            self.leave_channel(to);
        }
        if !is_request {
            self.handle_readable(to);
        }
        done()
    }

    fn end_wait(&mut self, key: IdKey, by_event: bool) {
        if by_event {
            self.made(Due::Migrate(key));
            self.stop_waiting(key);
        }
    }

    /// Handles a migration that the device refused, or whose channel could not be opened.
    pub(super) fn migrate_failed(&mut self, key: IdKey, by_event: bool, failure: Failure) -> Following<'static> {
        self.end_wait(key, by_event);
        if by_event {
            self.report_migrated(key, Err(failure.errno));
            return done();
        }
        // As every request, a migration discards the event that completed the previous request.
        if self.ids.get(key).is_some_and(|id| id.waits_for().is_none()) {
            self.set_sync_state(key, SyncState::Idle);
        }
        Err(failure.into())
    }

    /// Changes an id's channels. Its undelivered events follow, in order, ahead of any later ones.
    pub(super) fn apply_migrate(
        &mut self,
        key: IdKey,
        channel: ChannelKey,
        device_channel: ChannelKey,
        by_event: bool,
    ) {
        // The end of an open request of synchronous mode will be delivered as an event.
        self.set_sync_state(key, SyncState::Idle);
        let Some(id) = self.ids.get(key) else { return };
        let (from, undelivered) = (id.channel, id.undelivered);
        if by_event {
            // It is counted on the channel that the id is on so far.
            self.post(channel, Stored::made(key, EventKind::Migrated, Ok(())));
        }
        if undelivered > 0 {
            self.move_events(key, from, channel, undelivered);
        }
        self.set_channels(key, channel, device_channel);
        self.unpark();
    }

    /// Moves an id's `moved` events from any positions in one queue to the end of another or of the same one.
    fn move_events(&mut self, key: IdKey, from: ChannelKey, to: ChannelKey, moved: u32) {
        let Some(source) = self.channels.get_mut(from) else { return };
        self.deliverable -= if source.is_taken_from() { moved as usize } else { 0 };
        let mut events = core::mem::take(&mut source.events);
        let Some(target) = self.channels.get_mut(to) else { return };
        self.deliverable += if target.is_taken_from() { moved as usize } else { 0 };
        let mut counted = 0;
        take_events(&mut events, key, moved, |stored| {
            counted += u32::from(stored.of_channel());
            target.events.push_back(*stored);
        });
        target.counted += counted;
        if let Some(source) = self.channels.get_mut(from) {
            source.counted -= counted;
            // Only the same queue is not empty.
            events.append(&mut source.events);
            source.events = events;
        }
    }

    pub(super) fn report_migrated(&mut self, key: IdKey, outcome: Outcome) {
        if let Some(channel) = self.channel(key) {
            self.post(channel, Stored::made(key, EventKind::Migrated, outcome));
        }
    }
}
