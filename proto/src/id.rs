//! The data that the core stores for one id.

use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

use crate::arena::Tenant;
use crate::deadlines::Armed;
use crate::event::ConnParam;
use crate::key::{ChannelKey, GroupKey};
use crate::on_device::OnDevice;
use crate::pending_events::EventList;
use crate::refuse_reason::RefuseReason;
use crate::request::{PortSpace, Service};
use crate::request_kind::RequestKind;
use crate::slab_index::{EventRef, PrivateDataRef};
use crate::state::State;
use crate::table;
use crate::time::Time;
use crate::transport::Transport;

/// One `rdma_cm_id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) state: State,
    pub(crate) port_space: PortSpace,
    /// The channel on which its events are delivered.
    pub(crate) channel: ChannelKey,
    /// The channel on which the device reports its events. It differs from `channel` for a listener, and for the id
    /// of a request that is not accepted; see `machine/listen.rs`.
    pub(crate) device_channel: ChannelKey,
    /// Whether the id is in synchronous mode: `channel` is private to it.
    pub(crate) sync: bool,
    pub(crate) on_device: OnDevice,
    pub(crate) has_qp: bool,
    /// Whether a lookup was accepted: a QP number was sent to the peer. For connections the state contains this.
    pub(crate) number_sent: bool,
    /// Whether the device accepts connection requests for the id, or has done so.
    pub(crate) listens: bool,
    /// The operation of the device on this id.
    pub(crate) pending_call: PendingCall,
    /// A migration that waits for the application's acks. Until then another call may be made for the id.
    pub(crate) pending_migrate: Option<PendingMigrate>,
    /// The call that is queued or under way: its token's number.
    pub(crate) call: Option<NonZeroU64>,
    /// The private data of that call, or of the accept that follows it.
    pub(crate) call_data: Option<PrivateDataRef>,
    /// Whether a destroy has ended the request of the call under way: the result of that call is not reported.
    pub(crate) orphaned: bool,
    /// The number of events delivered and not acked; for a listener its requests are included.
    pub(crate) owed: u32,
    /// Whether a `DestroyNow` was submitted. If it fails, later events of the id have no ack tokens, so that an old
    /// token never counts as the ack of a later event.
    pub(crate) waived: bool,
    /// Its undelivered events, in order.
    pub(crate) pending: EventList,
    /// For a listener: the number of requests among the undelivered events, and its maximum.
    pub(crate) requests: u16,
    pub(crate) backlog: u16,
    /// The deadline of the operation that `state` waits for.
    pub(crate) deadline: Time,
    /// The deadline of a migration that waits for acks.
    pub(crate) move_deadline: Time,
    /// The nearest deadline of its joins.
    pub(crate) join_deadline: Time,
    /// The first entry of the list of its memberships.
    pub(crate) groups: Option<GroupKey>,
    /// Whether a teardown still has to make its second disconnect, see `Core::continue_teardown`.
    pub(crate) answer_due: bool,
    /// Its entry in the heap of deadlines.
    pub(crate) armed: Armed,
    /// Synchronous mode.
    pub(crate) sync_state: SyncState,
    /// How the end of the destroy is reported.
    pub(crate) destroy_waiter: DestroyWaiter,
    pub(crate) plain: Plain,
}

static_assertions::const_assert!(core::mem::size_of::<Id>() <= 192);

/// Whether an id is known to be [plain](Id::is_plain).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain(bool);

impl Plain {
    pub(crate) const YES: Plain = Plain(true);
}

// `Plain` is derived from the other fields, so equality and hash ignore it.
impl PartialEq for Plain {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Plain {}
impl Hash for Plain {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Tenant for Id {
    #[inline]
    fn touch(&mut self) {
        self.plain = Plain(false);
    }
}

/// How the end of a destroy is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DestroyWaiter {
    /// As the outcome of its call.
    Caller,
    /// As an event: the destroy was requested while a call was under way, or waited for acks.
    Channel,
    /// Not at all: the id is that of an undelivered connection request.
    None,
}

/// The operation of the device on an id: one call, or several in sequence. An id has at most one at a time; other
/// requests are refused as busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PendingCall {
    Nothing,
    /// Opens the private channel of a new synchronous id.
    OpenToCreate,
    Create,
    /// The call of a request. `before` is the state after a failure, `until` the deadline of that state.
    Request {
        request_kind: RequestKind,
        before: State,
        until: Time,
        bound: bool,
    },
    /// A migration to synchronous mode opens the private channel.
    OpenToMigrate {
        to: ChannelKey,
        by_event: bool,
    },
    /// The device migrates the id. `arrived`: an event on the new channel came before the outcome and shows the
    /// success.
    Migrate {
        to: ChannelKey,
        by_event: bool,
        arrived: bool,
    },
    /// A listen opens the id's own channel.
    OpenToListen {
        device_channel: ChannelKey,
        backlog: i32,
        before: State,
    },
    /// The device migrates the id to its own channel; a listen follows.
    MigrateToListen {
        device_channel: ChannelKey,
        backlog: i32,
        before: State,
    },
    /// An accept migrates the id of a request off its listener's channel; the accept call with `param` follows. The
    /// private data of the accept is stored as `call_data`.
    MigrateToAccept {
        param: ConnParam,
    },
    /// No operation yet: `Core::poll_child` destroys this id of an undelivered request in a later turn.
    Queued,
    /// The device joins a group for the id.
    Join {
        group: GroupKey,
    },
    /// The device leaves a group for the id.
    Leave {
        group: GroupKey,
        by_event: bool,
    },
    /// The second disconnect of a teardown; its outcome is ignored.
    Answer,
    Destroy,
}

/// The target of a migration that waits for acks; `None` is synchronous mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingMigrate {
    pub(crate) to: Option<ChannelKey>,
}

/// Synchronous mode: the open request, and the end of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SyncState {
    /// No request has been made since the id became synchronous.
    Never,
    /// This request is open.
    For(RequestKind),
    /// This request ended with this event, readable until the next request.
    Ended(RequestKind, EventRef),
    /// This request ended with this event while the id migrates. If the id leaves synchronous mode, the event is
    /// delivered on the new channel; otherwise as `Ended`.
    Posted(RequestKind, EventRef),
    /// The request ended without an event: at once, or at its deadline.
    Without { timed_out: bool },
}

impl Id {
    pub(crate) fn new(port_space: PortSpace, channel: ChannelKey, sync: bool) -> Self {
        Id {
            state: State::Idle,
            port_space,
            channel,
            device_channel: channel,
            sync,
            on_device: OnDevice::NO,
            has_qp: false,
            number_sent: false,
            listens: false,
            pending_call: PendingCall::Nothing,
            pending_migrate: None,
            call: None,
            call_data: None,
            orphaned: false,
            owed: 0,
            waived: false,
            pending: EventList::EMPTY,
            requests: 0,
            backlog: 0,
            deadline: Time::NEVER,
            move_deadline: Time::NEVER,
            join_deadline: Time::NEVER,
            groups: None,
            answer_due: false,
            armed: Armed::NOT,
            sync_state: SyncState::Never,
            destroy_waiter: DestroyWaiter::Caller,
            plain: Plain(!sync),
        }
    }

    /// Creates the id of a request that is neither accepted nor rejected yet.
    pub(crate) fn child(port_space: PortSpace, channel: ChannelKey, device_channel: ChannelKey) -> Self {
        Id {
            state: unanswered(port_space.service()),
            device_channel,
            on_device: OnDevice::YES,
            plain: Plain(false),
            ..Id::new(port_space, channel, false)
        }
    }

    /// Changes the state, except on the short paths of plain ids. A deadline ends with its operation. Returns whether
    /// the heap of deadlines or the memberships of the id must be updated.
    #[inline]
    pub(crate) fn enter(&mut self, next: State) -> bool {
        let before = core::mem::replace(&mut self.state, next);
        if before == next {
            return false;
        }
        self.answer_due &= next == State::Closing;
        let due = self.deadline;
        if table::operation(before).is_some() {
            self.deadline = Time::NEVER;
        }
        due != self.deadline || (self.groups.is_some() && matches!(next, State::Removed | State::Destroying))
    }

    /// Whether nothing is under way or stored for the id besides the operation that its state waits for. The short
    /// paths handle only such ids, see `machine/short`. The result is stored until a long path changes the id.
    #[inline]
    pub(crate) fn is_plain(&mut self) -> bool {
        self.plain.0 || self.is_found_plain()
    }

    #[inline(never)]
    fn is_found_plain(&mut self) -> bool {
        self.plain = Plain(matches!(self.pending_call, PendingCall::Nothing) && self.is_plain_but_for_a_call());
        self.plain.0
    }

    /// Whether the id will be plain when the call under way has returned.
    #[inline]
    pub(crate) fn is_plain_but_for_a_call(&self) -> bool {
        self.device_channel == self.channel && self.is_plain_but_for_its_device_channel()
    }

    /// Whether the id is on its listener's channel and would be plain otherwise.
    #[inline]
    pub(crate) fn is_plain_but_for_its_device_channel(&self) -> bool {
        matches!(self.sync_state, SyncState::Never) && !self.sync && self.has_nothing_under_way()
    }

    /// Whether the id is synchronous, has no open request, and would be plain otherwise.
    #[inline]
    pub(crate) fn is_plain_but_for_sync(&self) -> bool {
        self.sync
            && matches!(self.sync_state, SyncState::Never | SyncState::Ended(..) | SyncState::Without { .. })
            && matches!(self.pending_call, PendingCall::Nothing)
            && self.device_channel == self.channel
            && self.has_nothing_under_way()
    }

    /// The conditions on a plain id that concern neither its call, its channels, nor synchronous mode.
    #[inline]
    fn has_nothing_under_way(&self) -> bool {
        self.groups.is_none()
            && self.pending_migrate.is_none()
            && self.state != State::Destroying
            && self.on_device.transport() == Transport::InfiniBand
            && !(self.listens || self.waived || self.orphaned || self.answer_due)
    }

    /// Whether the id listens and nothing is under way for it. The short paths of connection requests handle only such
    /// listeners.
    #[inline]
    pub(crate) fn only_listens(&self) -> bool {
        self.state == State::Listening
            && matches!(self.pending_call, PendingCall::Nothing)
            && self.pending_migrate.is_none()
            && matches!(self.sync_state, SyncState::Never)
            && !(self.sync || self.waived || self.orphaned)
    }

    /// Whether the stored result of `is_plain` is correct; for checks.
    pub(crate) fn stored_plain_is_correct(&self) -> bool {
        !self.plain.0 || (self.pending_call == PendingCall::Nothing && self.is_plain_but_for_a_call())
    }

    /// Whether the id can be destroyed now: no call is under way, no ack is owed, and no answer to a connect is
    /// awaited.
    pub(crate) fn is_free(&self) -> bool {
        self.pending_call == PendingCall::Nothing && self.owed == 0 && !self.on_device.awaits_answer()
    }

    /// Whether a migration of the id is under way. Its events are not delivered meanwhile: an ack would be owed when
    /// the id migrates.
    pub(crate) fn is_moving(&self) -> bool {
        match self.pending_call {
            PendingCall::OpenToMigrate { .. }
            | PendingCall::Migrate { .. }
            | PendingCall::OpenToListen { .. }
            | PendingCall::MigrateToListen { .. }
            | PendingCall::MigrateToAccept { .. } => true,
            PendingCall::Nothing
            | PendingCall::Queued
            | PendingCall::OpenToCreate
            | PendingCall::Create
            | PendingCall::Request { .. }
            | PendingCall::Join { .. }
            | PendingCall::Leave { .. }
            | PendingCall::Answer
            | PendingCall::Destroy => false,
        }
    }

    /// Whether a migration to this channel is under way, so that an event on the channel shows its success before the
    /// outcome.
    pub(crate) fn arrives_on(&self, on: ChannelKey) -> bool {
        matches!(self.pending_call, PendingCall::Migrate { to, .. } if to == on && self.device_channel != on)
    }

    /// Whether a migration or a destruction may wait for the application's last ack.
    pub(crate) fn is_held_up(&self) -> bool {
        self.pending_migrate.is_some() || self.state == State::Destroying
    }

    /// Whether the id is that of a request that is not accepted. The kernel reports no events of such an id
    /// (`ucma_event_handler`), so after its migration the new channel has none of them.
    #[inline]
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.state, State::Requested | State::SidrReqReceived)
    }

    /// The id's state at the device. During the migration that precedes an accept, it is the state before the accept.
    pub(crate) fn state_at_device(&self) -> State {
        let is_to_accept = matches!(self.pending_call, PendingCall::MigrateToAccept { .. });
        if is_to_accept && matches!(self.state, State::Accepting | State::SidrResolved) {
            unanswered(self.port_space.service())
        } else {
            self.state
        }
    }

    /// Whether the id may share the channel of a listener, which is not read at the listener's backlog. Such an id has
    /// no events yet, or has ended, or is about to be migrated off the channel.
    pub(crate) fn may_share(&self) -> bool {
        self.is_request()
            || matches!(self.state, State::Failed | State::Removed | State::Destroying)
            || matches!(self.pending_call, PendingCall::MigrateToAccept { .. })
    }

    /// Returns the reason to refuse other requests while an operation is under way.
    pub(crate) fn busy(&self) -> Option<RefuseReason> {
        let request_kind = match self.pending_call {
            PendingCall::Nothing => return self.pending_migrate.map(|_| RefuseReason::Busy(RequestKind::Migrate)),
            PendingCall::OpenToCreate | PendingCall::Create => return Some(RefuseReason::BeingCreated),
            PendingCall::Request { request_kind, .. } => request_kind,
            PendingCall::OpenToMigrate { .. } | PendingCall::Migrate { .. } => RequestKind::Migrate,
            PendingCall::MigrateToAccept { .. } => RequestKind::Accept,
            PendingCall::OpenToListen { .. } | PendingCall::MigrateToListen { .. } => RequestKind::Listen,
            PendingCall::Join { .. } => RequestKind::Join,
            PendingCall::Leave { .. } => RequestKind::Leave,
            PendingCall::Answer => RequestKind::Teardown,
            PendingCall::Queued | PendingCall::Destroy => RequestKind::Destroy,
        };
        Some(RefuseReason::Busy(request_kind))
    }

    /// In synchronous mode: the open request.
    pub(crate) fn waits_for(&self) -> Option<RequestKind> {
        match self.sync_state {
            SyncState::For(request_kind) => Some(request_kind),
            SyncState::Never | SyncState::Ended(..) | SyncState::Posted(..) | SyncState::Without { .. } => None,
        }
    }

    /// The private data of the call that is under way.
    pub(crate) fn data_of_call(&self) -> Option<PrivateDataRef> {
        self.call_data.filter(|_| !matches!(self.pending_call, PendingCall::MigrateToAccept { .. }))
    }

    /// Returns the nearest of its deadlines.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        self.deadline.min(self.move_deadline).min(self.join_deadline)
    }
}

/// Returns the state of the id of a request that is neither accepted nor rejected.
pub(crate) const fn unanswered(service: Service) -> State {
    match service {
        Service::Connected => State::Requested,
        Service::Datagram => State::SidrReqReceived,
    }
}
