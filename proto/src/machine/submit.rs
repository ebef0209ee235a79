//! Submission of requests. The table is checked first, then the guards. Nothing changes before both allow the request.

use super::Core;
use crate::call::Call;
use crate::cm_event::CmEvent;
use crate::error::Refused;
use crate::guard;
use crate::id::{DestroyWaiter, Id, PendingCall, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::requests_of;
use crate::refuse_reason::RefuseReason;
use crate::request::{Acks, PortSpace, Request};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;

impl Core {
    /// Creates an id on a channel (rdma_create_id(3)); with `None`, in synchronous mode.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`], [`Refused::ChannelFailed`]; [`Refused::Full`] at the limit on ids or, in
    /// synchronous mode, on channels.
    pub fn create_id(&mut self, channel: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Refused> {
        if !self.has_room() {
            return Err(Refused::Full("ids"));
        }
        let (channel, sync) = match channel {
            Some(channel) => (self.target_channel(channel)?, false),
            None => (self.insert_channel(Acks::OnDelivery, true)?, true),
        };
        let id = self.insert_id(channel, port_space, sync).ok_or(Refused::Full("ids"))?;
        if sync {
            self.call_for_id(id, PendingCall::OpenToCreate, Call::OpenChannel { channel });
        } else {
            self.call_for_id(id, PendingCall::Create, Call::CreateId { id, channel, port_space });
        }
        Ok(id)
    }

    #[inline]
    pub(super) fn insert_id(&mut self, channel: ChannelKey, port_space: PortSpace, sync: bool) -> Option<IdKey> {
        let id = self.ids.insert(Id::new(port_space, channel, sync))?;
        self.join_channel(channel);
        Some(id)
    }

    /// Submits a request on an id. `deadline` applies to requests that a later event completes. If the deadline passes
    /// first, the request ends with [`EventKind::DeadlinePassed`](crate::EventKind::DeadlinePassed), in synchronous
    /// mode with `ETIMEDOUT`. The deadline also applies to a migration and a destruction while they wait for acks, and
    /// has no effect on other requests. A request with a deadline in the past is refused, unless it is a destruction.
    ///
    /// A request that makes a call has one [`Ended`](crate::Ended), from [`handle_outcome`](Core::handle_outcome).
    /// There are three exceptions:
    /// - `AttachQp`, `DetachQp`, `GetRequest`, and the migration of a listener, make no call: on return they are
    ///   complete, except that a `GetRequest` waits.
    /// - A request that [waits for acks](Core::waits_for_acks) ends by event instead.
    /// - A destroy ends all other requests of its id. Their ends are not reported, even if the destroy itself ends at
    ///   its deadline. If the id's creation is under way and fails, the id is gone. A leave that waited for acks is
    ///   not made.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    #[inline(always)]
    pub fn submit(&mut self, now: Time, key: IdKey, request: Request<'_>, deadline: Time) -> Result<(), Refused> {
        if self.submit_short(now, key, &request, deadline) {
            Ok(())
        } else {
            self.submit_any(now, key, &request, deadline)
        }
    }

    #[inline(never)]
    pub(super) fn submit_any(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
    ) -> Result<(), Refused> {
        let request_kind = request.request_kind();
        let next = self.decide(now, key, request_kind, request, deadline)?;
        self.link_single();
        match *request {
            Request::Destroy => self.begin_destroy(key, deadline, DestroyWaiter::Caller),
            Request::DestroyNow => self.begin_destroy_now(key, deadline),
            Request::Migrate { to } => return self.begin_migrate(key, to, deadline),
            Request::AttachQp | Request::DetachQp => self.note_qp(key, request_kind == RequestKind::AttachQp),
            Request::Listen { backlog } => self.begin_listen(key, backlog, next),
            Request::GetRequest => self.begin_get_request(key, deadline),
            Request::Join { addr, send_only } => self.begin_join(key, addr, send_only, deadline),
            Request::Leave { group } => self.begin_leave(key, group),
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
            | Request::SetEce { .. } => {
                if let Some((call, private_data)) = one_call(now, key, request, deadline) {
                    self.begin_call(key, request, next, deadline, call, private_data);
                }
            }
        }
        Ok(())
    }

    /// Records whether an id has a QP. This does not affect whether the id is plain.
    pub(crate) fn note_qp(&mut self, key: IdKey, has_qp: bool) {
        if let Some(id) = self.ids.get_untouched(key) {
            id.has_qp = has_qp;
        }
    }

    /// Records that an id is on an iWARP device: the [rules of events](crate::Transport::event_rule) that differ there
    /// apply to it from now on. Until then InfiniBand's apply. [`Drive`](crate::Drive) calls it before the requests
    /// that depend on the transport: when a QP is attached, and before a listen, a join or a teardown.
    ///
    /// If the DISCONNECTED of the id has come, the call also ends the connection.
    pub fn note_iwarp(&mut self, key: IdKey) {
        self.link_single();
        let Some(id) = self.ids.get_mut(key) else { return };
        id.on_device.note_iwarp();
        if id.state == State::Connecting {
            id.on_device.note_connect();
        }
        if id.state == State::PeerClosed && id.enter(State::Closed) {
            self.entered(key);
        }
    }

    /// Checks whether a request would be refused, without making it.
    ///
    /// # Errors
    /// The refusal.
    #[inline(always)]
    pub fn would_refuse(&self, now: Time, key: IdKey, request: &Request<'_>, deadline: Time) -> Result<(), Refused> {
        self.decide(now, key, request.request_kind(), request, deadline).map(drop)
    }

    /// Checks the table, then the other rules. Returns the id's next state, or the refusal.
    #[inline(always)]
    fn decide(
        &self,
        now: Time,
        key: IdKey,
        request_kind: RequestKind,
        request: &Request<'_>,
        deadline: Time,
    ) -> Result<State, Refused> {
        let id = self.get(key, request_kind)?;
        let refused = |reason| self.refusal(key, request_kind, reason);
        let next = table::request_rule(id.state, request_kind, id.port_space.service()).map_err(refused)?;
        if matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow) {
            // A second destruction is possible only while the first one waits for acks or for an answer.
            let is_late = id.state == State::Destroying && id.owed == 0 && !id.on_device.awaits_answer();
            return if is_late { Err(refused(RefuseReason::Busy(RequestKind::Destroy))) } else { Ok(next) };
        }
        // An open synchronous request allows a migration, and an open accept allows a notify.
        let open = id
            .waits_for()
            .filter(|_| !matches!(request_kind, RequestKind::Migrate | RequestKind::Notify))
            .map(RefuseReason::Busy);
        if let Some(reason) = id.busy().or(open) {
            return Err(refused(reason));
        }
        if request_kind == RequestKind::Migrate && id.owed > 0 && self.has_undelivered_end(id) {
            return Err(refused(RefuseReason::Busy(request_kind)));
        }
        if deadline.has_passed(now) {
            return Err(refused(RefuseReason::TooLate));
        }
        if matches!(request_kind, RequestKind::Migrate | RequestKind::Listen) {
            if let Some(reason) = self.lacks_channel(id, request) {
                return Err(refused(reason));
            }
        }
        guard::check(id, request_kind, request).map_err(refused)?;
        if let Some(reason) = self.lacks_events(id, request_kind, next) {
            return Err(refused(reason));
        }
        if matches!(request_kind, RequestKind::Join | RequestKind::Leave) {
            self.check_group(key, request).map_err(refused)?;
        }
        Ok(next)
    }

    /// Returns a reason to refuse a request if its end would not be reported: on a failed channel, or on the channel of
    /// a listener, which is not read until the listener's requests are taken.
    #[inline]
    fn lacks_events(&self, id: &Id, request_kind: RequestKind, next: State) -> Option<RefuseReason> {
        let waits = table::operation(next) == Some(request_kind)
            || matches!(request_kind, RequestKind::Join | RequestKind::GetRequest);
        let answers = request_kind == RequestKind::Accept;
        // An accept first moves the id off its listener's channel.
        let on = if answers { id.channel } else { id.device_channel };
        let channel = self.channels.get(on).filter(|_| waits || answers)?;
        if waits && channel.has_failed() {
            Some(RefuseReason::ChannelFailed(on))
        } else if answers && self.listener_on(channel).is_some() {
            Some(RefuseReason::OnListenersChannel)
        } else {
            (answers && id.device_channel != on && id.owed > 0).then_some(RefuseReason::OwesAcks)
        }
    }

    /// Checks a migration or a listen against the channels.
    fn lacks_channel(&self, id: &Id, request: &Request<'_>) -> Option<RefuseReason> {
        let full = || self.channels.next_key().is_none();
        if let Request::Migrate { to: Some(to) } = *request {
            match self.target_channel(to) {
                Ok(_) => None,
                Err(Refused::ChannelFailed { channel }) => Some(RefuseReason::ChannelFailed(channel)),
                Err(_) => Some(RefuseReason::NoSuchChannel(to)),
            }
        } else if let Request::Migrate { to: None } = request {
            (!self.moves_without_device(id) && full()).then_some(RefuseReason::NoChannelLeft)
        } else if matches!(*request, Request::Listen { backlog } if id.requests > requests_of(backlog)) {
            // Connection requests of an earlier listen that failed are untaken.
            Some(RefuseReason::Busy(RequestKind::Listen))
        } else if self.needs_own_channel(id) {
            if full() { Some(RefuseReason::NoChannelLeft) } else { (id.owed > 0).then_some(RefuseReason::OwesAcks) }
        } else {
            // The channel may have ids of connection requests of an earlier listen that failed.
            let is_shared = self.channels.get(id.device_channel).is_some_and(|device_channel| device_channel.ids > 1)
                && self.must_leave(id);
            is_shared.then_some(RefuseReason::SharesChannel)
        }
    }

    /// Whether other ids are on the channel of this id, or are migrating to it. Their events must not wait until a
    /// listener's requests are taken.
    fn must_leave(&self, id: &Id) -> bool {
        let is_coming = |other: &Id| {
            matches!(other.pending_call, PendingCall::MigrateToAccept { .. }) && other.channel == id.device_channel
        };
        let stays = |other: &Id| other.device_channel == id.device_channel && !other.may_share();
        self.ids.iter().any(|(_, other)| !core::ptr::eq(other, id) && (is_coming(other) || stays(other)))
    }

    #[cold]
    pub(super) fn refusal(&self, key: IdKey, request: RequestKind, reason: RefuseReason) -> Refused {
        match self.ids.get(key) {
            Some(id) => Refused::Request { id: key, request, state: id.state, reason },
            None => Refused::NoSuchId { id: key, request },
        }
    }

    /// Begins a request that is one device call.
    fn begin_call(
        &mut self,
        key: IdKey,
        request: &Request<'_>,
        next: State,
        deadline: Time,
        call: Call,
        private_data: &[u8],
    ) {
        let Some(id) = self.ids.get(key) else { return };
        let request_kind = request.request_kind();
        let waits = table::operation(next) == Some(request_kind);
        let open = id.sync && waits;
        self.clear_for(key, request_kind, open);
        let Some(id) = self.ids.get_mut(key) else { return };
        if request_kind == RequestKind::Connect {
            id.on_device.note_connect();
        }
        note_addresses(id, request);
        let (before, until) = (id.state, id.deadline);
        let (from, to) = (id.device_channel, id.channel);
        let mut more = id.enter(next);
        // Other requests keep the deadline of the operation that is under way.
        if waits {
            more |= id.deadline != deadline;
            id.deadline = deadline;
        }
        if more {
            self.entered(key);
        }
        let private_data_ref = self.pending.keep(private_data, None);
        if let Call::Accept { param, .. } = call {
            if from != to {
                return self.call_with(
                    key,
                    PendingCall::MigrateToAccept { param },
                    private_data_ref,
                    Call::Migrate { id: key, from, to },
                );
            }
        }
        let bound = binds(request);
        self.call_with(key, PendingCall::Request { request_kind, before, until, bound }, private_data_ref, call);
    }

    /// Begins a wait for a connection request, without a call. The request may have come already.
    fn begin_get_request(&mut self, key: IdKey, deadline: Time) {
        let Some(id) = self.ids.get(key) else { return };
        match self.first_of(id, CmEvent::ConnectRequest) {
            Some(event_ref) => {
                self.detach(event_ref, id.channel);
                self.clear_waiting(key, SyncState::Ended(RequestKind::GetRequest, event_ref));
            }
            None => {
                self.clear_waiting(key, SyncState::For(RequestKind::GetRequest));
                self.set_deadline(key, deadline);
            }
        }
    }

    /// Synchronous mode: discards the result of the last request. `open`: this request ends by event.
    #[inline]
    pub(super) fn clear_for(&mut self, key: IdKey, request_kind: RequestKind, open: bool) {
        // A notify belongs to the open accept.
        if request_kind != RequestKind::Notify {
            self.clear_waiting(key, if open { SyncState::For(request_kind) } else { SyncState::Never });
        }
    }

    /// Synchronous mode: discards the result of the last request and sets the next state.
    #[inline]
    pub(super) fn clear_waiting(&mut self, key: IdKey, next: SyncState) {
        let is_clear = |id: &Id| id.sync_state == SyncState::Never && next == SyncState::Never;
        if !self.ids.get(key).is_some_and(is_clear) {
            self.replace_waiting(key, next);
        }
    }

    #[inline(never)]
    fn replace_waiting(&mut self, key: IdKey, next: SyncState) {
        if let SyncState::Ended(..) | SyncState::Without { .. } = next {
            self.activity += 1;
        }
        if let Some(id) = self.ids.get_mut(key) {
            let ended = core::mem::replace(&mut id.sync_state, next);
            match ended {
                SyncState::Ended(_, event_ref) => {
                    let stored = self.pending.take(event_ref);
                    self.pending.discard(stored.private_data_ref);
                }
                // The deadline does not end with a state of the listener, so it ends here.
                SyncState::For(RequestKind::GetRequest) => self.set_deadline(key, Time::NEVER),
                // A posted event is still on the lists.
                SyncState::Posted(..) | SyncState::Never | SyncState::For(_) | SyncState::Without { .. } => {}
            }
        }
    }
}

/// Returns the call of a request that is one call, and its private data; `None` for any other request.
#[inline(always)]
pub(super) fn one_call<'a>(now: Time, id: IdKey, request: &Request<'a>, deadline: Time) -> Option<(Call, &'a [u8])> {
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
/// id is idle. Without one it binds the id to the wildcard, unless an earlier one that failed has bound it.
#[inline(always)]
pub(super) fn note_addresses(id: &mut Id, request: &Request<'_>) {
    if let Request::Bind { addr } = *request {
        id.on_device.note_bind(guard::is_loopback(addr));
    } else if let Request::ResolveAddr { src, dst } = *request {
        if id.state == State::Idle {
            id.on_device.note_source(src.is_some_and(guard::is_loopback));
        }
        id.on_device.note_peer(guard::is_loopback(dst));
    }
}

/// Records what a request whose call has succeeded has done to the id's addresses and device.
#[inline(always)]
pub(super) fn note_success(id: &mut Id, request: &Request<'_>) {
    id.on_device.note(binds(request));
    if matches!(*request, Request::Bind { .. }) {
        id.on_device.note_bound();
    }
}

/// Whether a request gives the id a device when its call succeeds.
#[inline(always)]
pub(super) fn binds(request: &Request<'_>) -> bool {
    matches!(*request, Request::Bind { addr } if guard::names_a_device(addr))
}

/// Returns the kernel's own timeout for a resolve: seven eighths of the time until the deadline. When the kernel's
/// timeout passes, the id returns to its previous state, and the request can be repeated. When the core's deadline
/// passes first, the state in the kernel is unknown, and the id can only be destroyed.
#[inline]
fn kernel_timeout(now: Time, deadline: Time) -> i32 {
    let left = deadline.0.saturating_sub(now.0);
    if deadline == Time::NEVER { i32::MAX } else { Time(left - left / 8).millis_from(Time::ZERO) }
}
