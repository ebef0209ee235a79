//! Outcomes of the device's calls.

use super::{Core, Ended};
use crate::call::{Call, Outcome};
use crate::channel::Phase;
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::error::{Failure, FailureCause, Fault};
use crate::event::EventKind;
use crate::id::{DestroyWaiter, Id, PendingCall, SyncState};
use crate::key::{ChannelKey, IdKey, Target, Token};
use crate::request::Service;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;

impl Core {
    /// Reports the outcome of a call. Report it before any event that came after the call was made. An event or a
    /// deadline that was reported before the outcome has precedence over it. An event that counted as late because of
    /// the call stays late even if the call has failed. Returns `Some` if the outcome has ended a request; a request
    /// that had to wait for acks ends by event instead.
    ///
    /// # Errors
    /// [`Fault`] if no such call is under way, or if the device could not close a channel or destroy an id.
    #[inline]
    pub fn handle_outcome(&mut self, token: Token, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        if outcome.is_ok() && self.end_short(token) {
            return Ok(Some(Ended { target: token.target, result: Ok(()) }));
        }
        self.take_outcome(token, outcome)
    }

    #[inline(never)]
    pub(super) fn take_outcome(&mut self, token: Token, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let result = match token.target {
            Target::Id(id) => self.id_outcome(id, token, outcome),
            Target::Channel(channel) => self.channel_outcome(channel, token, outcome),
        };
        if result.is_err() {
            self.counters.faults += 1;
        }
        result
    }

    fn channel_outcome(&mut self, key: ChannelKey, token: Token, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let channel = self
            .channels
            .get_mut(key)
            .filter(|channel| channel.call == Some(token.number))
            .ok_or(Fault::NoSuchCall { token })?;
        channel.call = None;
        let (call, is_requested) = (
            if channel.phase == Phase::Opening { "create_event_channel" } else { "destroy_event_channel" },
            !channel.private,
        );
        match (channel.phase, outcome) {
            (Phase::Opening, Ok(())) => channel.phase = Phase::Open,
            (Phase::Opening, Err(_)) if channel.ids > 0 => channel.phase = Phase::Broken,
            (Phase::Opening | Phase::Closing, _) => self.remove_channel(key),
            (Phase::Open | Phase::Broken, _) => return Err(Fault::NoSuchCall { token }),
        }
        match outcome {
            Err(errno) if !is_requested => Err(Fault::Leak { call, target: Target::Channel(key), errno }),
            _ if !is_requested => Ok(None),
            outcome => {
                let target = Target::Channel(key);
                let result = outcome.map_err(|errno| Failure { call, target, state: State::Idle, errno, cause: None });
                Ok(Some(Ended { target, result }))
            }
        }
    }

    fn id_outcome(&mut self, key: IdKey, token: Token, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let id = self.ids.get_mut(key).filter(|id| id.call == Some(token.number)).ok_or(Fault::NoSuchCall { token })?;
        id.call = None;
        let pending_call = core::mem::replace(&mut id.pending_call, PendingCall::Nothing);
        if !matches!(pending_call, PendingCall::MigrateToAccept { .. }) {
            self.pending.discard(id.call_data.take());
        }
        let orphaned = id.orphaned;
        let destroy = if orphaned { self.overtaking_destroy(key) } else { None };
        let ended = match pending_call {
            PendingCall::Nothing | PendingCall::Queued => return Err(Fault::NoSuchCall { token }),
            PendingCall::OpenToCreate => self.opened_to_create(key, outcome),
            PendingCall::Create => self.created(key, outcome),
            PendingCall::Request { request_kind, before, until, bound } => {
                Some(self.requested(key, request_kind, before, until, bound, outcome))
            }
            PendingCall::OpenToMigrate { to, by_event } => self.opened_to_move(key, to, by_event, outcome),
            PendingCall::Migrate { to, by_event, arrived } => {
                self.migrate_returned(key, to, by_event, arrived, outcome)
            }
            PendingCall::OpenToListen { device_channel, backlog, before } => {
                self.open_to_listen_returned(key, device_channel, backlog, before, outcome)
            }
            PendingCall::MigrateToListen { device_channel, backlog, before } => {
                self.migrate_to_listen_returned(key, device_channel, backlog, before, outcome)
            }
            PendingCall::MigrateToAccept { param } => self.moved_to_accept(key, param, outcome),
            PendingCall::Join { group } => Some(self.join_begun(key, group, outcome)),
            PendingCall::Leave { group, by_event } => self.left(key, group, by_event, outcome),
            // The teardown continues until its deadline, whatever the outcome.
            PendingCall::Answer => None,
            PendingCall::Destroy => return self.destroyed(key, outcome),
        };
        if orphaned {
            return Ok(self.orphan_ended(key, destroy));
        }
        self.resume(key);
        Ok(ended.map(|result| Ended { target: Target::Id(key), result }))
    }

    /// Returns the channel and the waiter of the destruction that has ended a request with a call under way. `None`
    /// if the end of that destruction is delivered already.
    fn overtaking_destroy(&self, key: IdKey) -> Option<(ChannelKey, DestroyWaiter)> {
        let id = self.ids.get(key)?;
        let gave_up = id.state != State::Destroying;
        let destroy_waiter = if gave_up { DestroyWaiter::Channel } else { id.destroy_waiter };
        (!gave_up || self.has_undelivered(id, EventKind::Destroyed)).then_some((id.channel, destroy_waiter))
    }

    /// Handles the return of a call after a destruction has ended its request. The destruction continues, unless it has
    /// ended at its deadline meanwhile.
    fn orphan_ended(&mut self, key: IdKey, destroy: Option<(ChannelKey, DestroyWaiter)>) -> Option<Ended> {
        let Some(id) = self.ids.get_mut(key) else {
            // An id that could not be created is gone without a destroy call.
            return destroy.and_then(|(channel, destroy_waiter)| self.report_gone(key, channel, destroy_waiter));
        };
        id.orphaned = id.pending_call != PendingCall::Nothing;
        self.continue_destroy(key);
        None
    }

    /// Continues the requests that may have waited for the id's call to return.
    fn resume(&mut self, key: IdKey) {
        if self.ids.get(key).is_some_and(|id| id.answer_due || id.groups.is_some() || id.pending_migrate.is_some()) {
            self.continue_teardown(key);
            self.continue_leave(key);
            self.continue_migrate(key);
        }
    }

    /// Handles the opening of the private channel of a new synchronous id.
    fn opened_to_create(&mut self, key: IdKey, outcome: Outcome) -> Option<Result<(), Failure>> {
        let id = self.ids.get(key)?;
        let (channel, port_space) = (id.device_channel, id.port_space);
        match outcome {
            Ok(()) => {
                self.now_open(channel);
                self.call_for_id(key, PendingCall::Create, Call::CreateId { id: key, channel, port_space });
                None
            }
            Err(errno) => {
                self.forget(key);
                Some(Err(creation_failure(key, "create_event_channel", errno)))
            }
        }
    }

    fn created(&mut self, key: IdKey, outcome: Outcome) -> Option<Result<(), Failure>> {
        if outcome.is_err() {
            self.forget(key);
        }
        Some(outcome.map_err(|errno| creation_failure(key, "create_id", errno)))
    }

    fn requested(
        &mut self,
        key: IdKey,
        request_kind: RequestKind,
        before: State,
        until: Time,
        bound: bool,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        if request_kind == RequestKind::Connect && outcome.is_err() {
            if let Some(id) = self.ids.get_mut(key) {
                id.on_device.note_answer();
            }
        }
        match outcome {
            Ok(()) => {
                if let Some(id) = self.ids.get_mut(key) {
                    id.on_device.note(bound);
                    if request_kind == RequestKind::Bind {
                        id.on_device.note_bound();
                    }
                    id.listens |= request_kind == RequestKind::Listen;
                    id.number_sent |= request_kind == RequestKind::Accept;
                }
                if request_kind == RequestKind::Disconnect {
                    self.disconnect_at_once(key);
                }
                Ok(())
            }
            // The destruction has set the state of the id.
            Err(_) if self.ids.get(key).is_none_or(|id| id.orphaned) => Ok(()),
            Err(_) if request_kind == RequestKind::Teardown && self.is_past_recall(key) => Ok(()),
            Err(errno) => {
                if request_kind == RequestKind::Listen {
                    self.listen_failed(key);
                }
                let service = self.ids.get(key).map_or(Service::Connected, |id| id.port_space.service());
                let begun = table::request_rule(before, request_kind, service).unwrap_or(before);
                // An event or a deadline before the outcome has changed the state and has precedence. It has also
                // ended a request that ends by event.
                if self.state(key) == Some(begun) {
                    self.set_state(key, table::after_failure(before, request_kind, errno));
                    // An operation that was under way before the request continues.
                    if self.state(key) == Some(before) && table::operation(before).is_some() {
                        self.set_deadline(key, until);
                        self.device_channel(key)
                            .into_iter()
                            .for_each(|device_channel| self.end_waits_on_failed(key, device_channel));
                    }
                } else if table::operation(begun) == Some(request_kind) {
                    return Ok(());
                }
                if self.ids.get(key).and_then(Id::waits_for) == Some(request_kind) {
                    self.clear_waiting(key, SyncState::Never);
                }
                let (call, target) = (request_kind.name(), Target::Id(key));
                let cause = self.ids.get(key).and_then(|id| failure_cause(id, request_kind));
                Err(Failure { call, target, state: self.state(key).unwrap_or(before), errno, cause })
            }
        }
    }

    /// Synchronous mode: ends a disconnect that waits for no event, because the peer disconnected first or there is
    /// no connection any more. If the peer's DISCONNECTED is undelivered, it becomes this request's event.
    pub(super) fn disconnect_at_once(&mut self, key: IdKey) {
        let Some(id) = self.ids.get(key) else { return };
        if !id.sync || id.orphaned || id.sync_state != SyncState::Never {
            return;
        }
        let (channel, at) = (id.channel, self.first_of(id, CmEvent::Disconnected));
        let ended = match at {
            Some(event_ref) => {
                self.detach(event_ref, channel);
                SyncState::Ended(RequestKind::Disconnect, event_ref)
            }
            None => SyncState::Without { timed_out: false },
        };
        self.clear_waiting(key, ended);
    }

    pub(super) fn now_open(&mut self, channel: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.phase = Phase::Open;
        }
    }
}

/// Returns what causes the failure of a call, if the core knows it.
fn failure_cause(id: &Id, request_kind: RequestKind) -> Option<FailureCause> {
    let connects = matches!(request_kind, RequestKind::ResolveAddr | RequestKind::ResolveRoute | RequestKind::Connect);
    (connects && id.on_device.is_to_loopback()).then_some(FailureCause::LoopbackPeer)
}

/// Returns the failure to create an id or its private channel.
pub(super) fn creation_failure(id: IdKey, call: &'static str, errno: Errno) -> Failure {
    Failure { call, target: Target::Id(id), state: State::Idle, errno, cause: None }
}
