//! Requests: the decision, the call, and what its outcome changes. Requests that are more than one call are in files of
//! their own.

use super::Core;
use super::begun::{Begun, Following, Part, RequestOf, Unacked, done};
use crate::cells::{Cell, Effects};
use crate::cm_event::CmEvent;
use crate::deadlines::Deadlines;
use crate::errno::Errno;
use crate::error::{Failure, FailureCause, Refused};
use crate::guard;
use crate::id::{Facts, Id, Rare, SyncState};
use crate::key::IdKey;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;
use crate::transport::Transport;

impl Core {
    /// Begins a request on an id. `deadline` applies to requests that a later event completes. If the deadline passes
    /// first, the request ends with [`EventKind::DeadlinePassed`](crate::EventKind::DeadlinePassed), in synchronous
    /// mode with `ETIMEDOUT`. The deadline also applies to a migration and a destruction while they wait for acks, and
    /// has no effect on other requests. A request with a deadline in the past is refused, unless it is a destruction.
    ///
    /// Nothing changes before [`Begun::end`]. Most requests are one call; a listen, an accept or a migration may be
    /// several. `AttachQp`, `DetachQp`, `GetRequest`, and the migration of a listener, make no call. A request that waits
    /// for acks makes its call [later](Core::next).
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn begin<'c, 'r>(
        &'c mut self,
        now: Time,
        id: IdKey,
        request: &'r Request<'r>,
        deadline: Time,
    ) -> Result<Begun<'c, 'r>, Refused> {
        let part = self.first_part(now, RequestOf { id, request, deadline })?;
        Ok(Begun::new(self, part))
    }

    #[inline(always)]
    fn first_part<'r>(&self, now: Time, of: RequestOf<'r>) -> Result<Part<'r>, Refused> {
        let request_kind = of.request.request_kind();
        let cell = match self.decide(now, &of, request_kind) {
            Ok(cell) => cell,
            Err(reason) => return Err(self.refusal(of.id, request_kind, reason)),
        };
        if cell.has(Effects::RARE) {
            return Ok(self.first_part_of_several(of, cell));
        }
        let resolves = matches!(request_kind, RequestKind::ResolveAddr | RequestKind::ResolveRoute);
        let timeout_ms = if resolves { kernel_timeout(now, of.deadline) } else { 0 };
        Ok(Part::Request { of, cell, timeout_ms })
    }

    /// Returns the first part of a request that is not always exactly one call.
    fn first_part_of_several<'r>(&self, of: RequestOf<'r>, cell: Cell) -> Part<'r> {
        let RequestOf { id, request, .. } = of;
        if let Request::Accept { .. } = request {
            self.accept_part(of, cell)
        } else if let Request::Listen { backlog } = *request {
            self.listen_part(id, backlog)
        } else if let Request::Migrate { to } = *request {
            self.migrate_part(id, to).unwrap_or(Part::Uncalled { of })
        } else if let Request::Join { .. } = request {
            Part::Join { of }
        } else if let Request::Leave { group } = *request {
            self.leave_part(id, group).unwrap_or(Part::Uncalled { of })
        } else if let Request::DestroyNow = request {
            Part::Destroy { id, asked: Some(Unacked::Waived) }
        } else if matches!(request, Request::Destroy) && self.ids.get(id).is_some_and(Id::is_free) {
            Part::Destroy { id, asked: Some(Unacked::Refused) }
        } else {
            Part::Uncalled { of }
        }
    }

    /// Carries out a request that makes no call, or waits for acks before its call.
    pub(super) fn uncalled(&mut self, of: &RequestOf<'_>) -> Following<'static> {
        let RequestOf { id, request, deadline, .. } = *of;
        if let Request::Migrate { to } = *request {
            return self.migrate_uncalled(id, to, deadline);
        } else if let Request::Leave { group } = *request {
            return self.leave_when_acked(id, group);
        } else if let Request::Destroy = request {
            return self.destroy_when_acked(id, deadline);
        } else if let Request::GetRequest = request {
            self.begin_get_request(id, deadline);
        } else if let Some(id) = self.ids.get_mut(id) {
            id.facts.set(Facts::HAS_QP, matches!(request, Request::AttachQp));
        }
        done()
    }

    /// Records that an id is on an iWARP device: the [rules of events](crate::Transport::event_rule) that differ there
    /// apply to it from now on. Until then InfiniBand's apply. [`Drive`](crate::Drive) calls it before the requests
    /// that depend on the transport: when a QP is attached, before a connect or an accept with a QP number, and before a
    /// listen, a join or a teardown.
    ///
    /// If the DISCONNECTED of the id has come, the call also ends the connection.
    pub fn note_iwarp(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        id.rare.insert(Rare::IWARP);
        if id.state == State::Connecting {
            id.facts.insert(Facts::AWAITS_ANSWER);
        }
        if id.state == State::PeerClosed {
            self.set_state(key, State::Closed);
        }
    }

    /// Applies the success of a request that is one call.
    #[inline(always)]
    pub(super) fn requested(&mut self, of: &RequestOf<'_>, cell: Cell) {
        let Some(id) = self.ids.get_mut(of.id) else { return };
        if !id.rare.is_empty() {
            return self.requested_rare(of, cell);
        }
        if enter(id, of, cell, &mut self.deadlines) {
            self.drop_stale();
        }
    }

    /// As [`requested`](Core::requested), for an id in synchronous mode, on iWARP, or in a teardown.
    #[cold]
    fn requested_rare(&mut self, of: &RequestOf<'_>, cell: Cell) {
        let key = of.id;
        let Some(id) = self.ids.get_mut(key) else { return };
        let request_kind = of.request.request_kind();
        if request_kind == RequestKind::Connect && id.transport() == Transport::Iwarp {
            id.facts.insert(Facts::AWAITS_ANSWER);
        }
        if cell.state != State::Closing {
            id.rare.remove(Rare::DISCONNECT_DUE);
        }
        let waits = cell.has(Effects::WAITS);
        // A notify belongs to the open accept.
        if request_kind != RequestKind::Notify {
            self.set_sync_state(key, if waits { SyncState::Open(request_kind) } else { SyncState::Idle });
        }
        if request_kind == RequestKind::Disconnect && !waits {
            self.disconnected_at_once(key);
        }
        if self.ids.get_mut(key).is_some_and(|id| enter(id, of, cell, &mut self.deadlines)) {
            self.drop_stale();
        }
    }

    /// Applies the failure of a request that is one call.
    pub(super) fn request_failed(&mut self, of: &RequestOf<'_>, errno: Errno) -> Failure {
        let (key, request_kind) = (of.id, of.request.request_kind());
        if let Some(id) = self.ids.get_mut(key) {
            note(id, of.request, false);
        }
        self.take_back(key, request_kind);
        if request_kind != RequestKind::Notify {
            self.set_sync_state(key, SyncState::Idle);
        }
        let cause = self.ids.get(key).and_then(|id| failure_cause(id, request_kind));
        Failure { cause, ..self.failure(key, request_kind.name(), errno) }
    }

    /// Applies the failure of a call to the state of its id.
    pub(super) fn take_back(&mut self, key: IdKey, request_kind: RequestKind) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let binds = matches!(request_kind, RequestKind::Bind | RequestKind::ResolveAddr | RequestKind::Listen);
        if binds && id.state == State::Idle {
            id.facts.insert(Facts::MAY_BE_BOUND);
        }
        let next = table::after_failure(id.state, request_kind);
        self.set_state(key, next);
    }

    /// Begins a wait for a connection request, without a call. The request may have come already.
    fn begin_get_request(&mut self, key: IdKey, deadline: Time) {
        match self.take_first(key, CmEvent::ConnectRequest) {
            Some(stored) => self.end_sync(key, RequestKind::GetRequest, stored),
            None => {
                self.set_sync_state(key, SyncState::Open(RequestKind::GetRequest));
                self.set_deadline(key, deadline);
            }
        }
    }
}

/// Returns what causes the failure of a call, if the core knows it.
fn failure_cause(id: &Id, request_kind: RequestKind) -> Option<FailureCause> {
    let connects = matches!(request_kind, RequestKind::ResolveAddr | RequestKind::ResolveRoute | RequestKind::Connect);
    (connects && id.facts.contains(Facts::TO_LOOPBACK)).then_some(FailureCause::LoopbackPeer)
}

/// Changes an id by a request that is made; see [`Id::enter`].
fn enter(id: &mut Id, of: &RequestOf<'_>, cell: Cell, deadlines: &mut Deadlines) -> bool {
    if cell.has(Effects::NOTED) {
        note(id, of.request, true);
    }
    id.enter(cell, of.deadline, of.id, deadlines)
}

/// Records what the requests of the effect [`Effects::NOTED`] leave on an id, before its state changes. A resolve uses the
/// source only if the id is idle, and binds the id to it even if it fails; without one it binds the id to the wildcard.
fn note(id: &mut Id, request: &Request<'_>, is_done: bool) {
    if let Request::ResolveAddr { src, dst } = *request {
        if id.state == State::Idle && src.is_some_and(guard::is_loopback) {
            id.facts.insert(Facts::ON_LOOPBACK);
        }
        // A bound id reaches the wildcard on iWARP: TCP takes it for the own address.
        let is_wildcard = id.state == State::Idle && dst.ip().is_unspecified();
        id.facts.set(Facts::TO_LOOPBACK, is_wildcard || guard::is_loopback(dst));
    } else if is_done {
        if let Request::Bind { addr } = *request {
            id.facts.set(Facts::ON_LOOPBACK, guard::is_loopback(addr));
            id.facts |= if guard::names_a_device(addr) { Facts::HAS_DEVICE } else { Facts::empty() };
        } else if let Request::Accept { .. } = request {
            id.facts.insert(Facts::NUMBER_SENT);
        }
    }
}

/// Returns the kernel's own timeout for a resolve: seven eighths of the time until the deadline. When the kernel's
/// timeout passes, the id returns to its previous state, and the request can be repeated. When the core's deadline
/// passes first, the state in the kernel is unknown, and the id can only be destroyed.
fn kernel_timeout(now: Time, deadline: Time) -> i32 {
    let left = deadline.0.saturating_sub(now.0);
    if deadline == Time::NEVER { i32::MAX } else { Time(left - left / 8).millis_from(Time::ZERO) }
}
