//! Migration. An id first waits for the acks that the application owes. Then the device call is under way. After its
//! outcome the id is on the new channel.

use super::Core;
use crate::call::{Call, Outcome};
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::event::EventKind;
use crate::id::{Id, PendingCall, PendingMigrate, SyncState};
use crate::key::{ChannelKey, IdKey, Target};
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::slab_index::EventRef;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Whether a `Migrated` event of the id is undelivered. Until its delivery, a migration that would wait for acks is
    /// refused. Otherwise migrations that end at their deadlines would add any number of events, because no limit
    /// counts these events.
    pub(super) fn has_undelivered_end(&self, id: &Id) -> bool {
        self.has_undelivered(id, EventKind::Migrated)
    }

    pub(super) fn begin_migrate(&mut self, key: IdKey, to: Option<ChannelKey>, deadline: Time) -> Result<(), Refused> {
        let id = self.get(key, RequestKind::Migrate)?;
        let (owed, sync_state) = (id.owed, id.sync_state);
        if owed == 0 {
            self.call_migrate(key, to, false)?;
            // As every request, a migration discards the event that completed the previous request.
            if !matches!(sync_state, SyncState::For(_)) {
                self.clear_waiting(key, SyncState::Never);
            }
            return Ok(());
        }
        if let Some(id) = self.ids.get_mut(key) {
            id.pending_migrate = Some(PendingMigrate { to });
            id.move_deadline = deadline;
        }
        self.arm_deadline(key);
        Ok(())
    }

    /// Continues a migration after the last ack, or after the return of the call that was under way.
    pub(super) fn continue_migrate(&mut self, key: IdKey) {
        let free = self.ids.get(key).filter(|id| id.owed == 0 && id.pending_call == PendingCall::Nothing);
        let Some(PendingMigrate { to }) = free.and_then(|id| id.pending_migrate) else { return };
        self.stop_quiescing(key);
        let started = match to {
            // The channel may have been closed while the acks were outstanding.
            Some(to) if self.target_channel(to).is_err() => Err(Errno::EBADF),
            to => self.call_migrate(key, to, true).map_err(|refused| refused.errno()),
        };
        if let Err(errno) = started {
            self.report_migrated(key, Err(errno));
        }
    }

    pub(super) fn stop_quiescing(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key) {
            id.pending_migrate = None;
            id.move_deadline = Time::NEVER;
        }
        self.arm_deadline(key);
    }

    fn call_migrate(&mut self, key: IdKey, to: Option<ChannelKey>, by_event: bool) -> Result<(), Refused> {
        let id = self.get(key, RequestKind::Migrate)?;
        let from = id.device_channel;
        if self.moves_without_device(id) {
            self.redirect(key, to, by_event);
            return Ok(());
        }
        match to {
            Some(to) => {
                self.join_channel(to);
                let pending_call = PendingCall::Migrate { to, by_event, arrived: false };
                self.call_for_id(key, pending_call, Call::Migrate { id: key, from, to });
            }
            None => {
                let to = self.insert_channel(Acks::OnDelivery, true)?;
                self.join_channel(to);
                self.call_for_id(key, PendingCall::OpenToMigrate { to, by_event }, Call::OpenChannel { channel: to });
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
        let (from, state, orphaned) = (id.device_channel, id.state, id.orphaned);
        match outcome {
            Ok(()) => {
                self.now_open(to);
                // A destruction has overtaken the migration: the new channel closes again.
                if orphaned {
                    self.leave_channel(to);
                    return None;
                }
                let pending_call = PendingCall::Migrate { to, by_event, arrived: false };
                self.call_for_id(key, pending_call, Call::Migrate { id: key, from, to });
                None
            }
            Err(errno) => {
                self.leave_channel(to);
                self.end_migrate(
                    key,
                    by_event,
                    Err(Failure { call: "create_event_channel", target: Target::Id(key), state, errno, cause: None }),
                )
            }
        }
    }

    pub(super) fn migrate_returned(
        &mut self,
        key: IdKey,
        to: ChannelKey,
        by_event: bool,
        arrived: bool,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let state = self.ids.get(key)?.state;
        match outcome {
            // An event on the new channel has shown already that the id has moved. An errno does not disprove it:
            // `ucma_migrate_id` may return EFAULT after it has moved the id.
            _ if arrived => (!by_event).then_some(Ok(())),
            Ok(()) => {
                self.complete_migrate(key, to, by_event);
                (!by_event).then_some(Ok(()))
            }
            Err(errno) => {
                self.leave_channel(to);
                self.stay(key);
                self.end_migrate(
                    key,
                    by_event,
                    Err(Failure {
                        call: RequestKind::Migrate.name(),
                        target: Target::Id(key),
                        state,
                        errno,
                        cause: None,
                    }),
                )
            }
        }
    }

    /// Completes a migration because an event came on the new channel before the device reported success.
    pub(super) fn arrive_by_event(&mut self, key: IdKey, on: ChannelKey) {
        let pending = self.ids.get_mut(key).map(|id| &mut id.pending_call);
        if let Some(&mut PendingCall::Migrate { by_event, ref mut arrived, .. }) = pending {
            *arrived = true;
            self.complete_migrate(key, on, by_event);
        }
    }

    /// Handles a failed migration of an id in synchronous mode: a request that ended meanwhile keeps its event.
    fn stay(&mut self, key: IdKey) {
        let Some(id) = self.ids.get(key) else { return };
        if let (SyncState::Posted(request_kind, event_ref), channel) = (id.sync_state, id.channel) {
            if let EventKind::DeadlinePassed(_) = self.pending.get(event_ref).kind {
                self.withdraw(event_ref, channel);
                self.clear_waiting(key, SyncState::Without { timed_out: true });
            } else {
                self.detach(event_ref, channel);
                self.clear_waiting(key, SyncState::Ended(request_kind, event_ref));
            }
        }
    }

    fn end_migrate(&mut self, key: IdKey, by_event: bool, result: Result<(), Failure>) -> Option<Result<(), Failure>> {
        if by_event {
            self.report_migrated(key, result.map_err(|failure| failure.errno));
            return None;
        }
        Some(result)
    }

    /// Completes a migration: the id is on its new channel.
    fn complete_migrate(&mut self, key: IdKey, to: ChannelKey, by_event: bool) {
        let private = self.is_private(to);
        let is_request = self.ids.get(key).is_some_and(Id::is_request);
        self.apply_migrate(key, to, to, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.sync = private;
            // A device call migrates a listener only if its device is removed, and then it does not listen any more.
            id.listens = false;
        }
        // The channel has also counted the id as the target of the migration.
        self.leave_channel(to);
        if !is_request {
            self.handle_readable(to);
        }
        self.end_waits_on_failed(key, to);
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
        self.clear_waiting(key, SyncState::Never);
        self.link_single();
        let Some(id) = self.ids.get_mut(key) else { return };
        let from = id.channel;
        let first = id.pending.head();
        if by_event && !id.orphaned {
            let event_ref = self.pending.store(Stored::made(key, EventKind::Migrated, 0));
            self.pending.link_owner_first(&mut id.pending, event_ref);
            if let Some(channel) = self.channels.get_mut(channel) {
                self.pending.append(&mut channel.pending, event_ref);
            }
        }
        self.move_events(first, from, channel);
        self.set_channels(key, channel, device_channel);
        self.activity += 1;
    }

    /// Moves an id's events, from `first` on, from any positions on one channel to the end of another or of the same
    /// one.
    fn move_events(&mut self, first: Option<EventRef>, from: ChannelKey, to: ChannelKey) {
        if first.is_none() || !self.channels.contains(to) {
            return;
        }
        let Some(source) = self.channels.get_mut(from) else { return };
        let list = self.pending.extract(&mut source.pending, first);
        if let Some(target) = self.channels.get_mut(to) {
            self.pending.splice(&mut target.pending, list);
        }
    }

    pub(super) fn report_migrated(&mut self, key: IdKey, result: Result<(), Errno>) {
        if let Some(id) = self.ids.get(key).filter(|id| !id.orphaned) {
            let (channel, status) = (id.channel, result.map_or_else(Errno::as_status, |()| 0));
            self.post(Stored::made(key, EventKind::Migrated, status), channel);
        }
    }
}
