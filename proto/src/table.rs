//! The states of an id as data: the effect of every request and event in every state.
//!
//! Each array has one row per [`State`] and one column per [`RequestKind`] or [`EventColumn`]: a new variant does not
//! compile until the arrays have its cells. [`EventColumn::of`] assigns a column to each event type.

use crate::cm_event::CmEvent;
use crate::columns::columns;
use crate::refuse_reason::RefuseReason;
use crate::request::Service;
use crate::request_kind::RequestKind;
use crate::state::State;

/// The effect of a request in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestRule {
    /// It is carried out. The id enters this state at once. If the device refuses the call, the id enters the state of
    /// [`after_failure`].
    Go(State),
    /// It is carried out. The new state depends on the [`Service`] of the id's port space.
    By {
        /// The state of an id for connections.
        connected: State,
        /// The state of an id for datagrams.
        datagram: State,
    },
    /// It is refused: nothing changes.
    Refuse(RefuseReason),
}

/// The effect of an event in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventRule {
    /// It is delivered, and the id enters this state.
    Go(State),
    /// Its operation has ended: it is counted, and not delivered.
    Late,
    /// It is impossible in this state: it is reported as a [`Fault`](crate::Fault), and not delivered.
    Fault,
}

columns! {
    /// A column of the [event table](EVENTS).
    pub enum EventColumn {
        /// ADDR_RESOLVED.
        AddrResolved = "ADDR_RESOLVED",
        /// ADDR_ERROR.
        AddrError = "ADDR_ERROR",
        /// ROUTE_RESOLVED.
        RouteResolved = "ROUTE_RESOLVED",
        /// ROUTE_ERROR.
        RouteError = "ROUTE_ERROR",
        /// CONNECT_REQUEST, seen from the listener.
        ConnectRequest = "CONNECT_REQUEST",
        /// CONNECT_RESPONSE.
        ConnectResponse = "CONNECT_RESPONSE",
        /// CONNECT_ERROR.
        ConnectError = "CONNECT_ERROR",
        /// UNREACHABLE: no answer has come; or, in any state, the peer's link address has changed.
        Unreachable = "UNREACHABLE",
        /// REJECTED.
        Rejected = "REJECTED",
        /// ESTABLISHED.
        Established = "ESTABLISHED",
        /// DISCONNECTED.
        Disconnected = "DISCONNECTED",
        /// DEVICE_REMOVAL.
        DeviceRemoval = "DEVICE_REMOVAL",
        /// MULTICAST_JOIN, for a membership that the id has.
        MulticastJoin = "MULTICAST_JOIN",
        /// MULTICAST_ERROR, for a membership that the id has.
        MulticastError = "MULTICAST_ERROR",
        /// ADDR_CHANGE.
        AddrChange = "ADDR_CHANGE",
        /// TIMEWAIT_EXIT.
        TimewaitExit = "TIMEWAIT_EXIT",
        /// Events that do not change the state of an id.
        Other = "other",
        /// The deadline of the operation that is under way.
        Deadline = "deadline",
    }
}

impl EventColumn {
    /// Returns the column of an event type.
    #[must_use]
    pub const fn of(event: CmEvent) -> EventColumn {
        match event {
            CmEvent::AddrResolved => EventColumn::AddrResolved,
            CmEvent::AddrError => EventColumn::AddrError,
            CmEvent::RouteResolved => EventColumn::RouteResolved,
            CmEvent::RouteError => EventColumn::RouteError,
            CmEvent::ConnectRequest => EventColumn::ConnectRequest,
            CmEvent::ConnectResponse => EventColumn::ConnectResponse,
            CmEvent::ConnectError => EventColumn::ConnectError,
            CmEvent::Unreachable => EventColumn::Unreachable,
            CmEvent::Rejected => EventColumn::Rejected,
            CmEvent::Established => EventColumn::Established,
            CmEvent::Disconnected => EventColumn::Disconnected,
            CmEvent::DeviceRemoval => EventColumn::DeviceRemoval,
            CmEvent::MulticastJoin => EventColumn::MulticastJoin,
            CmEvent::MulticastError => EventColumn::MulticastError,
            CmEvent::AddrChange => EventColumn::AddrChange,
            CmEvent::TimewaitExit => EventColumn::TimewaitExit,
            CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => EventColumn::Other,
        }
    }
}

/// Defines the short names of the cells that lead to a state, so that a row fits on one line.
macro_rules! states {
    ($rule:ident: $($name:ident $state:ident),+) => {
        $( pub(super) const $name: $rule = $rule::Go(State::$state); )+
    };
    ($rule:ident) => {
        states! {
            $rule:
            Bnd Bound, ArG AddrResolving, Adr AddrResolved, RrG RouteResolving, Rte RouteResolved, Cng Connecting,
            Rsp Responded, Rqd Requested, Acc Accepting, Con Connected, Dis Disconnecting, Clg Closing,
            PCl PeerClosed, TmW TimeWait, Cls Closed, SqS SidrReqSent, SqR SidrReqReceived, SRs SidrResolved,
            Fld Failed, Lis Listening, Rem Removed, Idl Idle
        }
    };
}

/// Short names for the cells, so that a row fits on one line.
#[allow(non_upper_case_globals, reason = "cells of a table, not constants of a program")]
mod request_rules {
    use super::{RefuseReason, RequestRule, State};
    states!(RequestRule);
    pub(super) const END: RequestRule = RequestRule::Go(State::Destroying);
    /// rdma_connect: a connection or a lookup.
    pub(super) const CnS: RequestRule = RequestRule::By { connected: State::Connecting, datagram: State::SidrReqSent };
    /// The kernel returns EINVAL.
    pub(super) const ___: RequestRule = RequestRule::Refuse(RefuseReason::WrongState);
    /// librdmacm follows a null pointer.
    pub(super) const dev: RequestRule = RequestRule::Refuse(RefuseReason::NoDevice);
    /// The call returns 0 and sends nothing, but moves an attached QP to its error state.
    pub(super) const nil: RequestRule = RequestRule::Refuse(RefuseReason::NotConnected);
    /// A destroy would take 70 seconds (`cm_send_rej` with an own request outstanding).
    pub(super) const sta: RequestRule = RequestRule::Refuse(RefuseReason::Stalls);
    /// The kernel or librdmacm stores it, and it has no effect any more.
    pub(super) const snt: RequestRule = RequestRule::Refuse(RefuseReason::AlreadySent);
    /// The kernel returns ENXIO.
    pub(super) const gon: RequestRule = RequestRule::Refuse(RefuseReason::DeviceGone);
    /// A QP number was sent to the peer already.
    pub(super) const num: RequestRule = RequestRule::Refuse(RefuseReason::NumberSent);
    /// The option is only for connections.
    pub(super) const nfd: RequestRule = RequestRule::Refuse(RefuseReason::NotForDatagrams);
    /// The kernel returns EISCONN.
    pub(super) const isc: RequestRule = RequestRule::Refuse(RefuseReason::IsConnected);
    /// The connection has ended, and a teardown has no event to wait for.
    pub(super) const ovr: RequestRule = RequestRule::Refuse(RefuseReason::IsOver);
    /// The kernel returns EINVAL and rejects the peer.
    pub(super) const brk: RequestRule = RequestRule::Refuse(RefuseReason::Breaks);
}

/// The effect of each request in each state: a row per [`State`], a column per [`RequestKind`] (headings: short names),
/// both in the order of `ALL`. If the device refuses the call, [`after_failure`] is the new state.
///
/// Sources: the kernel's state checks (`rdma_bind_addr` to `rdma_disconnect` of drivers/infiniband/core/cma.c) and,
/// from *connecting* on, those of the IB CM (`ib_send_cm_rep`, `ib_send_cm_rtu`, `cm_send_rej_locked`,
/// `cm_send_dreq_locked` of cm.c). Observed: docs/semantics.md, 2.2 and 2.3.
#[rustfmt::skip]
pub static REQUESTS: [[RequestRule; RequestKind::COUNT]; State::COUNT] = {
    use request_rules::*;
    [
        //                    bind  resA  resR  list  attQ  detQ  conn  acpt  rejt  estb  disc  tear  noti  getR  join  leav  tos   reu+  reu-  afon  ackt  ece   migr  rels  dest  dnow
        /* Idle            */ [Bnd, ArG, dev, Lis, dev, Idl, dev, dev, ___, ___, nil, nil, ___, ___, ___, Idl, Idl, Idl, Idl, Idl, Idl, Idl, Idl, Idl, END, END],
        /* Bound           */ [___, ArG, ___, Lis, Bnd, Bnd, ___, ___, ___, ___, nil, nil, ___, ___, Bnd, Bnd, Bnd, Bnd, ___, Bnd, Bnd, Bnd, Bnd, Bnd, END, END],
        /* AddrResolving   */ [___, ___, ___, ___, ArG, ArG, ___, ___, ___, ___, nil, nil, ___, ___, ___, ArG, ArG, ArG, ___, ___, ArG, ArG, ArG, ArG, END, END],
        /* AddrResolved    */ [___, ___, RrG, ___, Adr, Adr, ___, ___, ___, ___, nil, nil, ___, ___, Adr, Adr, Adr, Adr, ___, ___, Adr, Adr, Adr, Adr, END, END],
        /* RouteResolving  */ [___, ___, ___, ___, RrG, RrG, ___, ___, ___, ___, nil, nil, ___, ___, ___, RrG, RrG, RrG, ___, ___, RrG, RrG, RrG, RrG, END, END],
        /* RouteResolved   */ [___, ___, ___, ___, Rte, Rte, CnS, ___, ___, ___, nil, nil, ___, ___, ___, Rte, Rte, Rte, ___, ___, Rte, Rte, Rte, Rte, END, END],
        /* Connecting      */ [___, ___, ___, ___, num, ___, ___, sta, sta, sta, nil, nil, ___, ___, ___, Cng, snt, Cng, ___, ___, Cng, snt, Cng, Cng, END, END],
        /* Responded       */ [___, ___, ___, ___, num, Rsp, ___, brk, Fld, Con, nil, nil, ___, ___, ___, Rsp, snt, Rsp, ___, ___, Rsp, snt, Rsp, Rsp, END, END],
        //                    bind  resA  resR  list  attQ  detQ  conn  acpt  rejt  estb  disc  tear  noti  getR  join  leav  tos   reu+  reu-  afon  ackt  ece   migr  rels  dest  dnow
        /* Requested       */ [___, ___, ___, ___, Rqd, Rqd, ___, Acc, Fld, brk, nil, nil, ___, ___, ___, Rqd, snt, Rqd, ___, ___, Rqd, Rqd, Rqd, Rqd, END, END],
        /* Accepting       */ [___, ___, ___, ___, num, ___, ___, sta, sta, sta, nil, nil, Acc, ___, ___, Acc, snt, Acc, ___, ___, snt, snt, Acc, Acc, END, END],
        /* Connected       */ [___, ___, ___, ___, num, Con, ___, ___, ___, ___, Dis, Clg, isc, ___, ___, Con, snt, Con, ___, ___, snt, snt, Con, Con, END, END],
        /* Disconnecting   */ [___, ___, ___, ___, ___, Dis, ___, ___, ___, ___, Dis, Clg, ___, ___, ___, Dis, snt, Dis, ___, ___, snt, snt, Dis, Dis, END, END],
        /* Closing         */ [___, ___, ___, ___, ___, Clg, ___, ___, ___, ___, Clg, Clg, ___, ___, ___, Clg, snt, Clg, ___, ___, snt, snt, Clg, Clg, END, END],
        /* PeerClosed      */ [___, ___, ___, ___, ___, PCl, ___, ___, ___, ___, TmW, Clg, ___, ___, ___, PCl, snt, PCl, ___, ___, snt, snt, PCl, PCl, END, END],
        /* TimeWait        */ [___, ___, ___, ___, ___, TmW, ___, ___, ___, ___, TmW, Clg, ___, ___, ___, TmW, snt, TmW, ___, ___, snt, snt, TmW, TmW, END, END],
        /* Closed          */ [___, ___, ___, ___, ___, Cls, ___, ___, ___, ___, Cls, ovr, ___, ___, ___, Cls, snt, Cls, ___, ___, snt, snt, Cls, Cls, END, END],
        /* SidrReqSent     */ [___, ___, ___, ___, SqS, SqS, ___, ___, ___, ___, nil, nil, ___, ___, ___, SqS, snt, SqS, ___, ___, nfd, nfd, SqS, SqS, END, END],
        /* SidrReqReceived */ [___, ___, ___, ___, SqR, SqR, ___, SRs, Fld, brk, nil, nil, ___, ___, ___, SqR, snt, SqR, ___, ___, nfd, nfd, SqR, SqR, END, END],
        /* SidrResolved    */ [___, ___, ___, ___, SRs, SRs, ___, ___, ___, ___, nil, nil, ___, ___, ___, SRs, snt, SRs, ___, ___, nfd, nfd, SRs, SRs, END, END],
        /* Failed          */ [___, ___, ___, ___, ___, Fld, ___, ___, ___, ___, Fld, nil, ___, ___, ___, Fld, snt, Fld, ___, ___, snt, snt, Fld, Fld, END, END],
        /* Listening       */ [___, ___, ___, ___, ___, Lis, ___, ___, ___, ___, nil, nil, ___, Lis, ___, Lis, snt, ___, ___, ___, snt, snt, Lis, Lis, END, END],
        /* Removed         */ [gon, gon, gon, gon, gon, Rem, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, gon, Rem, Rem, END, END],
        /* Destroying      */ [___, ___, ___, ___, ___, END, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, ___, END],
    ]
};

/// Short names for the cells, so that a row fits on one line.
#[allow(non_upper_case_globals, reason = "cells of a table, not constants of a program")]
mod event_rules {
    use super::{EventRule, State};
    states!(EventRule);
    pub(super) const ooo: EventRule = EventRule::Late;
    pub(super) const xxx: EventRule = EventRule::Fault;
}

/// The effect of each event in each state: a row per [`State`], a column per [`EventColumn`], both in the order of
/// `ALL`.
///
/// An event of an operation that has ended is late; an event of an operation that was never begun is a fault.
/// UNREACHABLE on an id that has a route and waits for no answer only reports a changed link address
/// (`cma_netevent_callback`). DISCONNECTED may overtake ESTABLISHED. A CONNECT_REQUEST that precedes a failed listen
/// (`rdma_listen`) or a failed destroy is late. An event of a membership that the id does not have is late, even if
/// its cell is `Go`.
///
/// Sources: `cma_ib_handler`, `addr_handler`, `cma_work_handler` (drivers/infiniband/core/cma.c), `ucma_event_handler`
/// (ucma.c), `rdma_get_cm_event` (librdmacm). Observed: docs/semantics.md, section 4.
#[rustfmt::skip]
pub static EVENTS: [[EventRule; EventColumn::COUNT]; State::COUNT] = {
    use event_rules::*;
    [
        //                    adrR  adrE  rteR  rteE  creq  crsp  cerr  unre  rejd  estb  disc  remv  mjoi  merr  achg  twex  othr  dead
        /* Idle            */ [xxx, xxx, xxx, xxx, ooo, xxx, xxx, xxx, xxx, xxx, xxx, Rem, xxx, xxx, Idl, xxx, Idl, ooo],
        /* Bound           */ [xxx, ooo, xxx, xxx, ooo, xxx, xxx, xxx, xxx, xxx, xxx, Rem, Bnd, Bnd, Bnd, xxx, Bnd, ooo],
        /* AddrResolving   */ [Adr, Bnd, xxx, xxx, xxx, xxx, xxx, xxx, xxx, xxx, xxx, Rem, ArG, ArG, ArG, xxx, ArG, Fld],
        /* AddrResolved    */ [ooo, ooo, xxx, ooo, xxx, xxx, xxx, Adr, xxx, xxx, xxx, Rem, Adr, Adr, Adr, xxx, Adr, ooo],
        /* RouteResolving  */ [ooo, ooo, Rte, Adr, xxx, xxx, xxx, RrG, xxx, xxx, xxx, Rem, RrG, RrG, RrG, xxx, RrG, Fld],
        /* RouteResolved   */ [ooo, ooo, ooo, ooo, xxx, xxx, xxx, Rte, xxx, xxx, xxx, Rem, Rte, Rte, Rte, xxx, Rte, ooo],
        /* Connecting      */ [ooo, ooo, ooo, ooo, xxx, Rsp, Fld, Fld, Fld, Con, PCl, Rem, xxx, xxx, Cng, ooo, Cng, Fld],
        /* Responded       */ [ooo, ooo, ooo, ooo, xxx, ooo, Fld, Rsp, Fld, ooo, PCl, Rem, xxx, xxx, Rsp, ooo, Rsp, ooo],
        //                    adrR  adrE  rteR  rteE  creq  crsp  cerr  unre  rejd  estb  disc  remv  mjoi  merr  achg  twex  othr  dead
        /* Requested       */ [xxx, xxx, xxx, xxx, xxx, xxx, ooo, ooo, ooo, ooo, ooo, Rem, xxx, xxx, Rqd, ooo, Rqd, ooo],
        /* Accepting       */ [xxx, xxx, xxx, xxx, xxx, xxx, Fld, Fld, Fld, Con, PCl, Rem, xxx, xxx, Acc, ooo, Acc, Fld],
        /* Connected       */ [ooo, ooo, ooo, ooo, xxx, ooo, Fld, Con, Fld, ooo, PCl, Rem, xxx, xxx, Con, ooo, Con, ooo],
        /* Disconnecting   */ [ooo, ooo, ooo, ooo, xxx, ooo, ooo, Dis, Fld, ooo, TmW, Rem, xxx, xxx, Dis, Cls, Dis, TmW],
        /* Closing         */ [ooo, ooo, ooo, ooo, xxx, ooo, ooo, Clg, Clg, ooo, Clg, Rem, xxx, xxx, Clg, Cls, Clg, Cls],
        /* PeerClosed      */ [ooo, ooo, ooo, ooo, xxx, ooo, ooo, PCl, ooo, ooo, ooo, Rem, xxx, xxx, PCl, Cls, PCl, ooo],
        /* TimeWait        */ [ooo, ooo, ooo, ooo, xxx, ooo, ooo, TmW, ooo, ooo, ooo, Rem, xxx, xxx, TmW, Cls, TmW, ooo],
        /* Closed          */ [ooo, ooo, ooo, ooo, xxx, ooo, ooo, Cls, ooo, ooo, ooo, Rem, xxx, xxx, Cls, ooo, Cls, ooo],
        /* SidrReqSent     */ [ooo, Fld, ooo, ooo, xxx, xxx, xxx, Fld, xxx, SRs, xxx, Rem, SqS, SqS, SqS, xxx, SqS, Fld],
        /* SidrReqReceived */ [xxx, xxx, xxx, xxx, xxx, xxx, xxx, ooo, xxx, ooo, xxx, Rem, xxx, xxx, SqR, xxx, SqR, ooo],
        /* SidrResolved    */ [ooo, ooo, ooo, ooo, xxx, xxx, xxx, SRs, xxx, ooo, xxx, Rem, SRs, SRs, SRs, xxx, SRs, ooo],
        /* Failed          */ [ooo, ooo, ooo, ooo, ooo, ooo, ooo, Fld, ooo, ooo, ooo, Rem, Fld, Fld, Fld, ooo, Fld, ooo],
        /* Listening       */ [xxx, xxx, xxx, xxx, Lis, xxx, xxx, xxx, xxx, xxx, xxx, Rem, Lis, Lis, Lis, xxx, Lis, ooo],
        /* Removed         */ [ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo],
        /* Destroying      */ [ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, ooo, Fld],
    ]
};

/// Returns the cell of a request for an id of this service: the new state, or the reason to refuse the request.
///
/// # Errors
/// The reason to refuse it.
pub const fn request_rule(state: State, request_kind: RequestKind, service: Service) -> Result<State, RefuseReason> {
    match REQUESTS[state.index()][request_kind.index()] {
        RequestRule::Go(next) => Ok(next),
        RequestRule::By { connected, datagram } => Ok(match service {
            Service::Connected => connected,
            Service::Datagram => datagram,
        }),
        RequestRule::Refuse(reason) => Err(reason),
    }
}

/// Returns the cell of an event.
#[must_use]
pub const fn event_rule(state: State, column: EventColumn) -> EventRule {
    EVENTS[state.index()][column.index()]
}

/// Returns the request that a state waits for; the request's deadline applies while the id is in that state.
#[must_use]
pub const fn operation(state: State) -> Option<RequestKind> {
    match state {
        State::AddrResolving => Some(RequestKind::ResolveAddr),
        State::RouteResolving => Some(RequestKind::ResolveRoute),
        State::Connecting | State::SidrReqSent => Some(RequestKind::Connect),
        State::Accepting => Some(RequestKind::Accept),
        State::Disconnecting => Some(RequestKind::Disconnect),
        State::Closing => Some(RequestKind::Teardown),
        State::Destroying => Some(RequestKind::Destroy),
        State::Idle
        | State::Bound
        | State::AddrResolved
        | State::RouteResolved
        | State::Responded
        | State::Requested
        | State::Connected
        | State::PeerClosed
        | State::TimeWait
        | State::Closed
        | State::SidrReqReceived
        | State::SidrResolved
        | State::Failed
        | State::Listening
        | State::Removed => None,
    }
}

/// Returns the state after the device refused a call: the state before the request, or *failed* after an answer to the
/// peer.
///
/// An answer that fails has ended the handshake (`rdma_accept`, also for `rdma_establish`; `cm_send_rej_locked`,
/// `iw_cm_reject`), or has not reached the kernel, which then rejects the peer when the id is destroyed
/// (`cm_destroy_id`): the errno does not tell which. Nor does it tell whether a bind, a lookup or a listen of an idle
/// id has bound it: the id stays idle, and the device decides on a later bind.
#[must_use]
pub const fn after_failure(before: State, request_kind: RequestKind) -> State {
    let answers = matches!(request_kind, RequestKind::Accept | RequestKind::Reject | RequestKind::Establish);
    if answers { State::Failed } else { before }
}

#[cfg(test)]
mod tests;
