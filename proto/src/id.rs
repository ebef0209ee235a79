//! The data that the core stores for one id.

use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

use crate::arena::Tenant;
use crate::deadlines::Armed;
use crate::error::RefuseReason;
use crate::event::ConnParam;
use crate::key::{ChannelKey, GroupKey};
use crate::on_device::OnDevice;
use crate::pending_events::EventList;
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
    /// In synchronous mode: `channel` is private to it.
    pub(crate) sync: bool,
    pub(crate) on_device: OnDevice,
    pub(crate) has_qp: bool,
    /// A lookup was accepted: the peer has a QP number. For connections the state contains this.
    pub(crate) number_sent: bool,
    /// The device takes requests for it, or has done so.
    pub(crate) listens: bool,
    /// The operation of the device on this id.
    pub(crate) pending_call: PendingCall,
    /// A migration that waits for the application's acks. Until then another call may be made for the id.
    pub(crate) pending_migrate: Option<PendingMigrate>,
    /// The call that is queued or under way: its token's number.
    pub(crate) call: Option<NonZeroU64>,
    /// The private data of that call, or of the accept that follows it.
    pub(crate) call_data: Option<PrivateDataRef>,
    /// A destroy has ended the request of the call under way: the result of that call is not reported.
    pub(crate) orphaned: bool,
    /// The number of events delivered and not acked; for a listener its requests are included.
    pub(crate) owed: u32,
    /// The id was to be destroyed without the acks that were owed. If that failed, its later events have no ack
    /// tokens, so that an old token is never taken for a new one.
    pub(crate) waived: bool,
    /// Its undelivered events, in order.
    pub(crate) pending: EventList,
    /// For a listener: the number of requests among these, and the maximum.
    pub(crate) requests: u16,
    pub(crate) backlog: u16,
    /// The deadline of the operation that `state` waits for.
    pub(crate) deadline: Time,
    /// The deadline of a migration that waits for acks.
    pub(crate) move_deadline: Time,
    /// The nearest deadline of its joins.
    pub(crate) join_deadline: Time,
    /// The first of its memberships, which are a list.
    pub(crate) groups: Option<GroupKey>,
    /// A teardown owes the peer a second disconnect, see `Core::continue_teardown`.
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

// It is derived from the other fields.
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
    /// As an event: it was requested while a call was under way, or waited for acks.
    Channel,
    /// Not at all: the id of a request that the application never got.
    Nobody,
}

/// The operation of the device on an id: one call, or several in sequence. At most one at a time; other requests are
/// refused as busy.
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
    /// The device migrates it. `arrived`: an event on the new channel has shown the success before the outcome.
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
    /// The device migrates the id there; then it listens.
    MigrateToListen {
        device_channel: ChannelKey,
        backlog: i32,
        before: State,
    },
    /// An accept migrates the id of a request off its listener's channel; then it is accepted with `param`. Its
    /// private data is stored as that of the call.
    MigrateToAccept {
        param: ConnParam,
    },
    /// No operation yet: a child that a later turn destroys (`Core::poll_child`).
    Queued,
    /// The device joins a group for it.
    Join {
        group: GroupKey,
    },
    /// The device leaves a group for it.
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
    /// The request is open.
    For(RequestKind),
    /// It ended with this event, readable until the next request.
    Ended(RequestKind, EventRef),
    /// It ended with this event while the id migrates. The event is an undelivered event if the id leaves synchronous
    /// mode, else as `Ended`.
    Posted(RequestKind, EventRef),
    /// It ended without an event: at once, or at its deadline.
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

    /// Creates the id of a request that is not answered yet.
    pub(crate) fn child(port_space: PortSpace, channel: ChannelKey, device_channel: ChannelKey) -> Self {
        Id {
            state: unanswered(port_space.service()),
            device_channel,
            on_device: OnDevice::YES,
            plain: Plain(false),
            ..Id::new(port_space, channel, false)
        }
    }

    /// Changes the state; the short paths of plain ids do so themselves. A deadline ends with the operation that it
    /// belongs to. Returns whether the heap of deadlines or the memberships of the id have to follow.
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

    /// Whether nothing is under way or stored for it besides the operation that its state waits for. The short paths
    /// take only such ids, see `machine/short`. The result is stored until something other than a short path changes
    /// the id.
    #[inline]
    pub(crate) fn is_plain(&mut self) -> bool {
        self.plain.0 || self.is_found_plain()
    }

    #[inline(never)]
    fn is_found_plain(&mut self) -> bool {
        self.plain = Plain(matches!(self.pending_call, PendingCall::Nothing) && self.is_plain_but_for_a_call());
        self.plain.0
    }

    /// Whether it will be plain when the call under way has returned.
    #[inline]
    pub(crate) fn is_plain_but_for_a_call(&self) -> bool {
        self.device_channel == self.channel && self.is_plain_but_for_its_device_channel()
    }

    /// The same for an id on its listener's channel.
    #[inline]
    pub(crate) fn is_plain_but_for_its_device_channel(&self) -> bool {
        self.sync_state == SyncState::Never && !self.sync && self.has_nothing_under_way()
    }

    /// Whether it is synchronous, has no open request, and would be plain otherwise.
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

    /// Whether it listens and nothing is under way for it. The short paths of requests take only such listeners.
    #[inline]
    pub(crate) fn only_listens(&self) -> bool {
        self.state == State::Listening
            && matches!(self.pending_call, PendingCall::Nothing)
            && self.pending_migrate.is_none()
            && self.sync_state == SyncState::Never
            && !(self.sync || self.waived || self.orphaned)
    }

    /// Whether the stored result of `is_plain` is right: for checks.
    pub(crate) fn is_known_rightly(&self) -> bool {
        !self.plain.0 || (self.pending_call == PendingCall::Nothing && self.is_plain_but_for_a_call())
    }

    /// Whether nothing holds up its destruction: no call is under way, no ack is owed, and no answer is awaited.
    pub(crate) fn is_free(&self) -> bool {
        self.pending_call == PendingCall::Nothing && self.owed == 0 && !self.on_device.awaits_answer()
    }

    /// Whether the device is about to migrate it. Its events wait meanwhile: an event taken now would owe an ack when
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

    /// Whether an event on this channel shows that a migration has succeeded whose outcome is not reported yet.
    pub(crate) fn arrives_on(&self, on: ChannelKey) -> bool {
        matches!(self.pending_call, PendingCall::Migrate { to, .. } if to == on && self.device_channel != on)
    }

    /// Whether a migration or a destruction may wait for the application's last ack.
    pub(crate) fn is_held_up(&self) -> bool {
        self.pending_migrate.is_some() || self.state == State::Destroying
    }

    /// Whether it is the id of a request that is not accepted. The kernel reports no events of such an id
    /// (`ucma_event_handler`), so none wait on a channel that it is migrated to.
    #[inline]
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.state, State::Requested | State::SidrReqReceived)
    }

    /// The id's state at the device. An accept that first migrates the id has not been made yet.
    pub(crate) fn state_at_device(&self) -> State {
        let is_to_accept = matches!(self.pending_call, PendingCall::MigrateToAccept { .. });
        if is_to_accept && matches!(self.state, State::Accepting | State::SidrResolved) {
            unanswered(self.port_space.service())
        } else {
            self.state
        }
    }

    /// Whether its events may wait on the channel of a listener that takes no requests: it has none before it is
    /// accepted, and none that matter after its end.
    pub(crate) fn may_share(&self) -> bool {
        self.is_request()
            || matches!(self.state, State::Failed | State::Removed | State::Destroying)
            || matches!(self.pending_call, PendingCall::MigrateToAccept { .. })
    }

    /// The operation under way, as the reason to refuse other requests.
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

/// The state of the id of a request that is not answered.
pub(crate) const fn unanswered(service: Service) -> State {
    match service {
        Service::Connected => State::Requested,
        Service::Datagram => State::SidrReqReceived,
    }
}
