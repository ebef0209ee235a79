//! Migration: settled, quiescing (the application owes acks), moving (the device is at it), settled.

use super::Core;
use crate::device::{Call, Outcome};
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::event::EventKind;
use crate::id::{Doing, Id, Quiesce, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::mail::Letter;
use crate::request::{Acks, Verb};
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Whether a migration has ended of which the application does not know. One that would wait for acks is refused until
    /// it does: with a deadline each, they would fill the core with events that no limit counts.
    pub(super) fn has_untold_end(&self, id: &Id) -> bool {
        self.has_undelivered(id, EventKind::Migrated)
    }

    pub(super) fn begin_migrate(&mut self, key: IdKey, to: Option<ChannelKey>, deadline: Time) -> Result<(), Refused> {
        let id = self.get(key, Verb::Migrate)?;
        let (owed, waiting) = (id.owed, id.waiting);
        if owed == 0 {
            self.start_move(key, to, false)?;
            // As every request, it gives up the event that completed the one before.
            if !matches!(waiting, Waiting::For(_)) {
                self.clear_waiting(key, Waiting::Never);
            }
            return Ok(());
        }
        if let Some(id) = self.ids.get_mut(key) {
            id.quiesce = Some(Quiesce { to });
            id.move_deadline = deadline;
        }
        self.set_alarm(key);
        Ok(())
    }

    /// The last ack is in, or the call that was under way has returned.
    pub(super) fn continue_migrate(&mut self, key: IdKey) {
        let free = self.ids.get(key).filter(|id| id.owed == 0 && id.doing == Doing::Nothing);
        let Some(Quiesce { to }) = free.and_then(|id| id.quiesce) else { return };
        self.stop_quiescing(key);
        let started = match to {
            // The channel may have been closed while the acks were outstanding.
            Some(to) if self.target_channel(to).is_err() => Err(Errno::EBADF),
            to => self.start_move(key, to, true).map_err(|refused| refused.errno()),
        };
        if let Err(errno) = started {
            self.tell_migrated(key, Err(errno));
        }
    }

    pub(super) fn stop_quiescing(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key) {
            id.quiesce = None;
            id.move_deadline = Time::NEVER;
        }
        self.set_alarm(key);
    }

    fn start_move(&mut self, key: IdKey, to: Option<ChannelKey>, by_event: bool) -> Result<(), Refused> {
        let id = self.get(key, Verb::Migrate)?;
        let from = id.line;
        if self.moves_without_device(id) {
            self.redirect(key, to, by_event);
            return Ok(());
        }
        match to {
            Some(to) => {
                self.join_channel(to);
                let doing = Doing::Move { to, by_event, arrived: false };
                self.call_for_id(key, doing, Call::Migrate { id: key, from, to });
            }
            None => {
                let to = self.insert_channel(Acks::OnDelivery, true)?;
                self.join_channel(to);
                self.call_for_id(key, Doing::OpenToMove { to, by_event }, Call::OpenChannel { channel: to });
            }
        }
        Ok(())
    }

    pub(super) fn opened_to_move(
        &mut self,
        key: IdKey,
        to: ChannelKey,
        by_event: bool,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let id = self.ids.get(key)?;
        let (from, state, orphaned) = (id.line, id.state, id.orphaned);
        match outcome {
            Ok(()) => {
                self.now_open(to);
                // A destroy overtook the migration: the channel that was opened for it goes again.
                if orphaned {
                    self.leave_channel(to);
                    return None;
                }
                let doing = Doing::Move { to, by_event, arrived: false };
                self.call_for_id(key, doing, Call::Migrate { id: key, from, to });
                None
            }
            Err(errno) => {
                self.leave_channel(to);
                self.end_migrate(key, by_event, Err(Failure { call: "create_event_channel", state, errno }))
            }
        }
    }

    pub(super) fn moved(
        &mut self,
        key: IdKey,
        to: ChannelKey,
        by_event: bool,
        arrived: bool,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let state = self.ids.get(key)?.state;
        match outcome {
            // An event on the new channel has told already; against that an errno proves nothing (`ucma_migrate_id`
            // may say EFAULT after it has moved the id).
            _ if arrived => (!by_event).then_some(Ok(())),
            Ok(()) => {
                self.arrive(key, to, by_event);
                (!by_event).then_some(Ok(()))
            }
            Err(errno) => {
                self.leave_channel(to);
                self.stay(key);
                self.end_migrate(key, by_event, Err(Failure { call: Verb::Migrate.name(), state, errno }))
            }
        }
    }

    /// An event on the new channel, before the device has told that the migration succeeded: it has.
    pub(super) fn arrive_by_event(&mut self, key: IdKey, on: ChannelKey) {
        if let Some(id) = self.ids.get_mut(key)
            && let Doing::Move { by_event, ref mut arrived, .. } = id.doing
        {
            *arrived = true;
            self.arrive(key, on, by_event);
        }
    }

    /// It stays in synchronous mode: a request that ended meanwhile keeps its event.
    fn stay(&mut self, key: IdKey) {
        let Some(id) = self.ids.get(key) else { return };
        if let (Waiting::Posted(verb, letter), home) = (id.waiting, id.home) {
            if let EventKind::DeadlinePassed(_) = self.mail.get(letter).kind {
                self.withdraw(letter, home);
                self.clear_waiting(key, Waiting::Without { timed_out: true });
            } else {
                self.detach(letter, home);
                self.clear_waiting(key, Waiting::Ended(verb, letter));
            }
        }
    }

    fn end_migrate(&mut self, key: IdKey, by_event: bool, result: Result<(), Failure>) -> Option<Result<(), Failure>> {
        if by_event {
            self.tell_migrated(key, result.map_err(|failure| failure.errno));
            return None;
        }
        Some(result)
    }

    /// The id is on its new channel.
    fn arrive(&mut self, key: IdKey, to: ChannelKey, by_event: bool) {
        let private = self.is_private(to);
        let is_request = self.ids.get(key).is_some_and(Id::is_request);
        self.relocate(key, to, to, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.sync = private;
            // The device is asked to move no listener; of one that has lost its device nothing is left that listens.
            id.listens = false;
        }
        // It counted as on its way.
        self.leave_channel(to);
        if !is_request {
            self.handle_readable(to);
        }
        self.end_waits_on_failed(key, to);
    }

    /// The id's events are delivered elsewhere: the undelivered ones follow, in order, ahead of any later ones.
    pub(super) fn relocate(&mut self, key: IdKey, home: ChannelKey, line: ChannelKey, by_event: bool) {
        // A request of synchronous mode that is still open ends by an ordinary event.
        self.clear_waiting(key, Waiting::Never);
        self.link_single();
        let Some(id) = self.ids.get_mut(key) else { return };
        let from = id.home;
        let first = id.mail.head();
        if by_event && !id.orphaned {
            let letter = self.mail.store(Stored::made(key, EventKind::Migrated, 0));
            self.mail.own_first(&mut id.mail, letter);
            if let Some(channel) = self.channels.get_mut(home) {
                self.mail.append(&mut channel.mail, letter);
            }
        }
        self.transfer(first, from, home);
        self.place(key, home, line);
        self.news += 1;
    }

    /// Moves an id's events, from this one on, from wherever they stand on one channel to the end of another, or of the same.
    fn transfer(&mut self, first: Option<Letter>, from: ChannelKey, to: ChannelKey) {
        if first.is_none() || !self.channels.contains(to) {
            return;
        }
        let Some(source) = self.channels.get_mut(from) else { return };
        let list = self.mail.extract(&mut source.mail, first);
        if let Some(target) = self.channels.get_mut(to) {
            self.mail.splice(&mut target.mail, list);
        }
    }

    pub(super) fn tell_migrated(&mut self, key: IdKey, result: Result<(), Errno>) {
        if let Some(id) = self.ids.get(key)
            && !id.orphaned
        {
            let (home, status) = (id.home, result.map_or_else(Errno::as_status, |()| 0));
            self.post(Stored::made(key, EventKind::Migrated, status), home);
        }
    }
}
