//! Requests: the decision, the call, and what its outcome changes. Requests that are more than one call are in files of
//! their own.

use super::Core;
use super::begun::{Begun, DONE, Flow, Following, RequestOf, Then, Unacked};
use crate::call::{Call, Outcome};
use crate::cells::Effects;
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::error::{FailureCause, Refused};
use crate::guard;
use crate::id::{Id, Rare, SyncState};
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
    /// Most requests are one call; a listen, an accept or a migration may be several. `AttachQp`, `DetachQp`,
    /// `GetRequest`, and the migration of a listener, make no call. A request that waits for acks makes its call
    /// [later](Core::next).
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    #[inline(always)]
    pub fn begin<'c, 'r>(
        &'c mut self,
        now: Time,
        key: IdKey,
        request: &'r Request<'r>,
        deadline: Time,
    ) -> Result<Flow<'c, 'r>, Refused> {
        let cell = self.decide(now, key, request, deadline)?;
        let of = RequestOf { request, cell, deadline };
        let Some((call, private_data)) = one_call(now, key, request, deadline) else {
            return Ok(self.begin_other(key, of));
        };
        if let Request::Accept { .. } = request {
            if let Some(call) = self.move_before_accept(key) {
                return Ok(Flow::Next(Begun::new(self, call, &[], Then::MoveToAccept(of))));
            }
        }
        Ok(Flow::Next(Begun::new(self, call, private_data, Then::Request(of))))
    }

    /// Begins a request that is not exactly one call.
    #[inline(never)]
    fn begin_other<'c, 'r>(&'c mut self, key: IdKey, of: RequestOf<'r>) -> Flow<'c, 'r> {
        let RequestOf { request, deadline, .. } = of;
        let begun = match *request {
            Request::Listen { backlog } => self.begin_listen(key, backlog),
            Request::Migrate { to } => self.begin_migrate(key, to, deadline),
            Request::Join { addr, send_only } => self.begin_join(key, addr, send_only, deadline),
            Request::Leave { group } => self.begin_leave(key, group),
            Request::Destroy => self.begin_destroy(key, deadline),
            Request::DestroyNow => {
                Following::Call(Call::Destroy { id: key }, Then::Destroy { asked: Some(Unacked::Waived) })
            }
            Request::AttachQp | Request::DetachQp => {
                self.note_qp(key, matches!(request, Request::AttachQp));
                DONE
            }
            Request::GetRequest => {
                self.begin_get_request(key, deadline);
                DONE
            }
            // These are one call.
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Connect { .. }
            | Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Establish
            | Request::Disconnect
            | Request::Teardown
            | Request::Notify
            | Request::SetOption { .. }
            | Request::SetEce { .. } => DONE,
        };
        match begun {
            Following::Call(call, then) => Flow::Next(Begun::new(self, call, &[], then)),
            Following::Done(result) => Flow::Done(result),
        }
    }

    /// Records whether an id has a QP.
    fn note_qp(&mut self, key: IdKey, has_qp: bool) {
        if let Some(id) = self.ids.get_mut(key) {
            id.has_qp = has_qp;
        }
    }

    /// Records that an id is on an iWARP device: the [rules of events](crate::Transport::event_rule) that differ there
    /// apply to it from now on. Until then InfiniBand's apply. [`Drive`](crate::Drive) calls it before the requests
    /// that depend on the transport: when a QP is attached, and before a listen, a join or a teardown.
    ///
    /// If the DISCONNECTED of the id has come, the call also ends the connection.
    pub fn note_iwarp(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        id.rare.insert(Rare::IWARP);
        if id.state == State::Connecting {
            id.on_device.note_connect();
        }
        if id.state == State::PeerClosed {
            self.set_state(key, State::Closed);
        }
    }

    /// Applies the success of a request that is one call.
    #[inline(always)]
    pub(super) fn requested(&mut self, key: IdKey, of: &RequestOf<'_>) {
        let RequestOf { request, cell, deadline } = *of;
        let Some(mut id) = self.ids.get_mut(key) else { return };
        if !id.rare.is_empty() {
            self.requested_rare(key, of);
            let Some(again) = self.ids.get_mut(key) else { return };
            id = again;
        }
        note_addresses(id, request, true);
        id.state = cell.state;
        id.on_device.note(binds(request));
        id.number_sent |= matches!(request, Request::Accept { .. });
        if cell.has(Effects::ENDS.union(Effects::WAITS)) {
            id.deadline = if cell.has(Effects::WAITS) { deadline } else { Time::NEVER };
            self.arm(key);
        }
    }

    /// The part of [`requested`](Core::requested) for an id in synchronous mode, on iWARP, or in a teardown.
    #[cold]
    fn requested_rare(&mut self, key: IdKey, of: &RequestOf<'_>) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let request_kind = of.request.request_kind();
        if request_kind == RequestKind::Connect && id.transport() == Transport::Iwarp {
            id.on_device.note_connect();
        }
        if of.cell.state != State::Closing {
            id.rare.remove(Rare::ANSWER_DUE);
        }
        let waits = id.is_sync() && of.cell.has(Effects::WAITS);
        // A notify belongs to the open accept.
        if request_kind != RequestKind::Notify {
            self.set_sync_state(key, if waits { SyncState::For(request_kind) } else { SyncState::Never });
        }
        if request_kind == RequestKind::Disconnect && !waits {
            self.disconnected_at_once(key);
        }
    }

    /// Applies the outcome of a request that is one call.
    pub(super) fn request_ended(&mut self, key: IdKey, of: &RequestOf<'_>, outcome: Outcome) -> Following<'static> {
        let Err(errno) = outcome else {
            self.requested(key, of);
            return DONE;
        };
        let request_kind = of.request.request_kind();
        let Some(id) = self.ids.get_mut(key) else { return DONE };
        note_addresses(id, of.request, false);
        let next = table::after_failure(id.state, request_kind, errno);
        self.set_state(key, next);
        if request_kind != RequestKind::Notify {
            self.set_sync_state(key, SyncState::Never);
        }
        self.failed_because(key, request_kind, errno)
    }

    fn failed_because(&self, key: IdKey, request_kind: RequestKind, errno: Errno) -> Following<'static> {
        let mut failure = self.failure(key, request_kind.name(), errno);
        failure.cause = self.ids.get(key).and_then(|id| failure_cause(id, request_kind));
        failure.into()
    }

    /// Begins a wait for a connection request, without a call. The request may have come already.
    fn begin_get_request(&mut self, key: IdKey, deadline: Time) {
        match self.take_first(key, CmEvent::ConnectRequest) {
            Some(stored) => self.end_sync(key, RequestKind::GetRequest, stored),
            None => {
                self.set_sync_state(key, SyncState::For(RequestKind::GetRequest));
                self.set_deadline(key, deadline);
            }
        }
    }
}

/// Returns what causes the failure of a call, if the core knows it.
fn failure_cause(id: &Id, request_kind: RequestKind) -> Option<FailureCause> {
    let connects = matches!(request_kind, RequestKind::ResolveAddr | RequestKind::ResolveRoute | RequestKind::Connect);
    (connects && id.on_device.is_to_loopback()).then_some(FailureCause::LoopbackPeer)
}

/// Returns the call of a request that is one call, and its private data; `None` for any other request.
#[inline(always)]
fn one_call<'r>(now: Time, id: IdKey, request: &'r Request<'r>, deadline: Time) -> Option<(Call, &'r [u8])> {
    Some(match *request {
        Request::Bind { addr } => (Call::Bind { id, addr }, &[]),
        Request::ResolveAddr { src, dst } => {
            (Call::ResolveAddr { id, src, dst, timeout_ms: kernel_timeout(now, deadline) }, &[])
        }
        Request::ResolveRoute => (Call::ResolveRoute { id, timeout_ms: kernel_timeout(now, deadline) }, &[]),
        Request::Connect { param, private_data } => (Call::Connect { id, param }, private_data),
        Request::Accept { param, private_data } => (Call::Accept { id, param }, private_data),
        Request::Reject { reason, private_data } => (Call::Reject { id, reason }, private_data),
        Request::Establish => (Call::Establish { id }, &[]),
        Request::Disconnect | Request::Teardown => (Call::Disconnect { id }, &[]),
        Request::Notify => (Call::Notify { id }, &[]),
        Request::SetOption { option } => (Call::SetOption { id, option }, &[]),
        Request::SetEce { ece } => (Call::SetEce { id, ece }, &[]),
        Request::Listen { .. }
        | Request::AttachQp
        | Request::DetachQp
        | Request::GetRequest
        | Request::Join { .. }
        | Request::Leave { .. }
        | Request::Migrate { .. }
        | Request::Destroy
        | Request::DestroyNow => return None,
    })
}

/// Records which addresses of an id are of the loopback, before its state changes. A resolve uses the source only if the
/// id is idle, and binds the id to it even if it fails; without one it binds the id to the wildcard.
#[inline(always)]
fn note_addresses(id: &mut Id, request: &Request<'_>, is_done: bool) {
    if let Request::Bind { addr } = *request {
        if is_done {
            id.on_device.note_local(guard::is_loopback(addr));
        }
    } else if let Request::ResolveAddr { src, dst } = *request {
        if id.state == State::Idle {
            id.on_device.note_source(src.is_some_and(guard::is_loopback));
        }
        id.on_device.note_peer(guard::is_loopback(dst));
    }
}

/// Whether a request gives the id a device when its call succeeds.
#[inline(always)]
fn binds(request: &Request<'_>) -> bool {
    matches!(*request, Request::Bind { addr } if guard::names_a_device(addr))
}

/// Returns the kernel's own timeout for a resolve: seven eighths of the time until the deadline. When the kernel's
/// timeout passes, the id returns to its previous state, and the request can be repeated. When the core's deadline
/// passes first, the state in the kernel is unknown, and the id can only be destroyed.
#[inline(always)]
fn kernel_timeout(now: Time, deadline: Time) -> i32 {
    let left = deadline.0.saturating_sub(now.0);
    if deadline == Time::NEVER { i32::MAX } else { Time(left - left / 8).millis_from(Time::ZERO) }
}
