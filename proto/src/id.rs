//! The data that the core stores for one id.

use crate::cells::{Cell, Effects};
use crate::deadlines::{Armed, Deadlines};
use crate::event::AckToken;
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::refuse_reason::RefuseReason;
use crate::request::{Acks, PortSpace, Service};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Of;
use crate::time::Time;
use crate::transport::Transport;

/// One `rdma_cm_id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) state: State,
    pub(crate) port_space: PortSpace,
    /// What is rare about the id. With no bit set, no step that only such ids need is taken.
    pub(crate) rare: Rare,
    pub(crate) facts: Facts,
    /// The channel on which its events are delivered.
    pub(crate) channel: ChannelKey,
    /// The channel on which the device reports its events. It differs from `channel` for a listener, and for the id
    /// of a request that is not accepted; see `machine/listen.rs`.
    pub(crate) device_channel: ChannelKey,
    /// The number of events delivered and not acked; for a listener its requests are included.
    pub(crate) owed: u32,
    /// The number of its events in the queue of `channel`; for a listener its requests are included.
    pub(crate) undelivered: u32,
    /// For a listener: the number of requests among the undelivered events, and its maximum.
    pub(crate) requests: u16,
    pub(crate) backlog: u16,
    /// The deadline of the operation that `state` waits for.
    pub(crate) deadline: Time,
    /// The deadline of a migration that waits for acks.
    pub(crate) move_deadline: Time,
    /// The nearest deadline of its joins.
    pub(crate) join_deadline: Time,
    /// With [`Rare::MOVES`], the channel to migrate to; `None` is synchronous mode.
    pub(crate) move_to: Option<ChannelKey>,
    /// The first entry of the list of its memberships.
    pub(crate) groups: Option<GroupKey>,
    /// Its entry in the heap of deadlines.
    pub(crate) armed: Armed,
    /// Synchronous mode.
    pub(crate) sync_state: SyncState,
    /// How the end of the destroy is reported.
    pub(crate) destroy_report: DestroyReport,
}

static_assertions::const_assert!(core::mem::size_of::<Id>() <= 152);

bitflags::bitflags! {
    /// What is rare about an id. Each bit is the only place of its fact.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Rare: u8 {
        /// The id is in synchronous mode: its channel is private to it.
        const SYNC = 1;
        /// The device accepts connection requests for the id, or has done so.
        const LISTENS = 2;
        /// A migration waits for the application's acks, or its call is due.
        const MOVES = 4;
        /// The device is an iWARP device.
        const IWARP = 8;
        /// A teardown still has to make its second disconnect; see `machine/next.rs`.
        const DISCONNECT_DUE = 16;
        /// A `DestroyNow` has failed. Later events of the id have no ack tokens, so that an old token never counts as
        /// the ack of a later event.
        const WAIVED = 32;
    }
}

bitflags::bitflags! {
    /// What is known of an id besides its state.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Facts: u8 {
        /// The id has a device.
        const HAS_DEVICE = 1;
        /// A connect has begun on an iWARP device and is not answered. A disconnect and a destroy block in the kernel until
        /// the answer (`iw_cm_disconnect`, `iw_destroy_cm_id`).
        const AWAITS_ANSWER = 2;
        /// The id is bound to an address of the [loopback](crate::guard::is_loopback), or may be: a lookup of an idle id binds
        /// it to its source also if it fails.
        const ON_LOOPBACK = 4;
        /// The address of the peer is of the [loopback](crate::guard::is_loopback), or the wildcard, which the kernel takes
        /// for it (`cma_any_addr`).
        const TO_LOOPBACK = 8;
        /// The id has a QP.
        const HAS_QP = 16;
        /// A lookup was accepted: a QP number was sent to the peer. For connections the state contains this.
        const NUMBER_SENT = 32;
        /// A call that binds an idle id has failed. The errno does not tell whether the id is bound: the kernel binds
        /// it before it looks for the destination or listens (`resolve_prepare_src`, `rdma_listen`), and librdmacm
        /// queries it after a bind (`rdma_bind_addr2`).
        const MAY_BE_BOUND = 64;
    }
}

/// How the end of a destroy is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DestroyReport {
    /// As the result of its request.
    Result,
    /// As an event: the destroy has waited for acks.
    Event,
    /// Not at all: the id is that of an undelivered connection request.
    Nothing,
}

/// Synchronous mode: the open request, or the end of the last one, if it had no event. Its event is stored in the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SyncState {
    /// No request is open: none has been made since the id became synchronous, or an event has ended the last one.
    Idle,
    /// This request is open.
    Open(RequestKind),
    /// The last request has ended without an event: at once, or at its deadline.
    Over { timed_out: bool },
}

impl Id {
    pub(crate) fn new(port_space: PortSpace, channel: ChannelKey, sync: bool) -> Self {
        Id {
            state: State::Idle,
            port_space,
            rare: if sync { Rare::SYNC } else { Rare::empty() },
            facts: Facts::empty(),
            channel,
            device_channel: channel,
            owed: 0,
            undelivered: 0,
            requests: 0,
            backlog: 0,
            deadline: Time::NEVER,
            move_deadline: Time::NEVER,
            join_deadline: Time::NEVER,
            move_to: None,
            groups: None,
            armed: Armed::NOT,
            sync_state: SyncState::Idle,
            destroy_report: DestroyReport::Result,
        }
    }

    /// Creates the id of a request that is neither accepted nor rejected yet.
    pub(crate) fn child(port_space: PortSpace, channel: ChannelKey, device_channel: ChannelKey) -> Self {
        let state = match port_space.service() {
            Service::Connected => State::Requested,
            Service::Datagram => State::SidrReqReceived,
        };
        Id { state, device_channel, facts: Facts::HAS_DEVICE, ..Id::new(port_space, channel, false) }
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.rare.contains(Rare::SYNC)
    }

    /// The transport; InfiniBand until `Core::note_iwarp`.
    pub(crate) fn transport(&self) -> Transport {
        if self.rare.contains(Rare::IWARP) { Transport::Iwarp } else { Transport::InfiniBand }
    }

    /// Whether the id can be destroyed now: no ack is owed, and no answer to a connect is awaited.
    pub(crate) fn is_free(&self) -> bool {
        self.owed == 0 && !self.facts.contains(Facts::AWAITS_ANSWER)
    }

    /// Whether its destruction has waited and is due.
    pub(crate) fn is_to_go(&self) -> bool {
        self.state == State::Destroying && self.is_free()
    }

    /// Whether the id is that of a request that is not accepted. The kernel reports no events of such an id
    /// (`ucma_event_handler`), so after its migration the new channel has none of them.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.state, State::Requested | State::SidrReqReceived)
    }

    /// Whether the id may share the channel of a listener, which is not read at the listener's backlog. Such an id has
    /// no events yet, or has ended.
    pub(crate) fn may_share(&self) -> bool {
        self.is_request() || matches!(self.state, State::Failed | State::Removed | State::Destroying)
    }

    /// Returns the reason to refuse other requests while a call is due or a migration waits.
    pub(crate) fn busy(&self) -> Option<RefuseReason> {
        if self.rare.contains(Rare::DISCONNECT_DUE) {
            Some(RefuseReason::Busy(RequestKind::Teardown))
        } else if self.rare.contains(Rare::MOVES) {
            Some(RefuseReason::Busy(RequestKind::Migrate))
        } else {
            None
        }
    }

    /// In synchronous mode: the open request.
    pub(crate) fn waits_for(&self) -> Option<RequestKind> {
        match self.sync_state {
            SyncState::Open(request_kind) => Some(request_kind),
            SyncState::Idle | SyncState::Over { .. } => None,
        }
    }

    /// Counts the ack that the application owes for an event.
    pub(crate) fn owe(&mut self, of: Of, acks: Acks) -> Option<AckToken> {
        if acks != Acks::Explicit || self.rare.contains(Rare::WAIVED) {
            return None;
        }
        self.owed += 1;
        Some(AckToken { owner: of.owner(), group: of.group })
    }

    /// Changes the state by a cell of the tables; `deadline` is that of a request that waits. Returns whether entries of the
    /// heap of deadlines may be stale; see [`Deadlines::arm`].
    pub(crate) fn enter(&mut self, cell: Cell, deadline: Time, key: IdKey, deadlines: &mut Deadlines) -> bool {
        self.state = cell.state;
        let before = self.deadline;
        if cell.has(Effects::WAITS) {
            self.deadline = deadline;
        } else if cell.has(Effects::ENDS) {
            self.deadline = Time::NEVER;
        }
        self.deadline != before && self.arm(key, deadlines)
    }

    /// Updates the heap of deadlines after a change of one of its own; see [`Deadlines::arm`].
    pub(crate) fn arm(&mut self, key: IdKey, deadlines: &mut Deadlines) -> bool {
        let due = self.due();
        deadlines.arm(&mut self.armed, due, key)
    }

    /// Returns the nearest of its deadlines.
    pub(crate) fn due(&self) -> Time {
        self.deadline.min(self.move_deadline).min(self.join_deadline)
    }
}
