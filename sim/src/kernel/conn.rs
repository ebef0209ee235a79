//! The IB CM's part of an id: one connection's protocol state.

use std::net::IpAddr;
use std::time::Duration;

use crate::fabric::config::{LifeTime, RESPONSE_TIMEOUT};
use crate::fabric::timers::TimerKey;
use crate::index::{CommId, HostNo, IdNo};
use crate::kernel::wire::Message;

/// The protocol state (`enum ib_cm_state`). REQ_RCVD and REP_RCVD are missing: the RDMA CM arms an MRA within the same
/// callback (`cma_ib_req_handler`, `cma_ib_handler`), so an id never rests there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbState {
    Idle,
    ReqSent,
    /// REQ sent, and the peer has asked for time.
    MraReqRcvd,
    /// A request that the application has not answered.
    MraReqSent,
    RepSent,
    /// REP sent, and the peer has asked for time.
    MraRepRcvd,
    /// An answer that the application has not confirmed.
    MraRepSent,
    Established,
    DreqSent,
    DreqRcvd,
    Timewait,
    /// A datagram service is being looked up.
    SidrReqSent,
    /// A lookup that the application has not answered.
    SidrReqRcvd,
}

impl IbState {
    /// Whether the kernel gives QP attributes for INIT (`cm_init_qp_init_attr`).
    pub(crate) const fn gives_init(self) -> bool {
        match self {
            IbState::ReqSent
            | IbState::MraReqRcvd
            | IbState::MraReqSent
            | IbState::RepSent
            | IbState::MraRepRcvd
            | IbState::MraRepSent
            | IbState::Established => true,
            IbState::Idle
            | IbState::DreqSent
            | IbState::DreqRcvd
            | IbState::Timewait
            | IbState::SidrReqSent
            | IbState::SidrReqRcvd => false,
        }
    }

    /// Whether it gives those for RTR and RTS (`cm_init_qp_rtr_attr`, `cm_init_qp_rts_attr`).
    pub(crate) const fn gives_ready(self) -> bool {
        match self {
            IbState::MraReqSent
            | IbState::RepSent
            | IbState::MraRepRcvd
            | IbState::MraRepSent
            | IbState::Established => true,
            IbState::Idle
            | IbState::ReqSent
            | IbState::MraReqRcvd
            | IbState::DreqSent
            | IbState::DreqRcvd
            | IbState::Timewait
            | IbState::SidrReqSent
            | IbState::SidrReqRcvd => false,
        }
    }
}

/// A message that waits for its answer.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) message: Message,
    pub(crate) sent: u8,
    pub(crate) interval: Duration,
    pub(crate) timer: TimerKey,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: IbState,
    pub(crate) local_ip: IpAddr,
    pub(crate) remote_ip: IpAddr,
    pub(crate) local_comm: CommId,
    pub(crate) remote_comm: Option<CommId>,
    /// The peer's device, once heard of.
    pub(crate) remote_host: Option<HostNo>,
    pub(crate) local_qp_num: u32,
    pub(crate) remote_qp_num: u32,
    pub(crate) retry_count: u8,
    /// Of the path; what both sides' time waits are made from.
    pub(crate) life_time: LifeTime,
    /// Between two transmissions of a message that this side sends.
    pub(crate) interval: Duration,
    pub(crate) outstanding: Option<Outstanding>,
    pub(crate) time_wait: Option<TimerKey>,
}

impl Conn {
    pub(crate) fn new(
        state: IbState,
        local_ip: IpAddr,
        remote_ip: IpAddr,
        local_comm: CommId,
        life_time: LifeTime,
    ) -> Self {
        Conn {
            state,
            local_ip,
            remote_ip,
            local_comm,
            remote_comm: None,
            remote_host: None,
            local_qp_num: 0,
            remote_qp_num: 0,
            retry_count: 0,
            life_time,
            interval: RESPONSE_TIMEOUT,
            outstanding: None,
            time_wait: None,
        }
    }
}

/// Whether a peer's connection could be entered into its host's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    New,
    /// The peer's name for it is known: a duplicate.
    Known,
    /// This live connection uses the peer's QP number.
    Stale(IdNo),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_follow_the_connection() {
        // INIT already while the request is under way, RTR and RTS not before there is an answer.
        assert!(IbState::ReqSent.gives_init() && !IbState::ReqSent.gives_ready());
        assert!(IbState::MraRepSent.gives_ready() && IbState::MraReqSent.gives_ready());
        assert!(!IbState::Timewait.gives_init() && !IbState::Idle.gives_init());
    }
}
