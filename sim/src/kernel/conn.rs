//! The IB CM's part of an id: the protocol state of one connection.

use std::net::IpAddr;
use std::time::Duration;

use crate::fabric::config::{PathTimeout, RESPONSE_TIMEOUT};
use crate::fabric::timers::TimerKey;
use crate::index::{CommId, HostNo, IdNo};
use crate::kernel::wire::Message;

/// The protocol state (`enum ib_cm_state`). REQ_RCVD and REP_RCVD are omitted: the RDMA CM sends an MRA in the same
/// callback (`cma_ib_req_handler`, `cma_ib_handler`), so an id never stays in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbState {
    Idle,
    ReqSent,
    /// REQ sent, and MRA received.
    MraReqRcvd,
    /// REQ received, not answered by the application.
    MraReqSent,
    RepSent,
    /// REP sent, and MRA received.
    MraRepRcvd,
    /// REP received, not confirmed by the application.
    MraRepSent,
    Established,
    DreqSent,
    DreqRcvd,
    Timewait,
    /// SIDR REQ sent.
    SidrReqSent,
    /// SIDR REQ received, not answered by the application.
    SidrReqRcvd,
}

impl IbState {
    /// Whether the kernel provides QP attributes for INIT (`cm_init_qp_init_attr`).
    pub(crate) const fn gives_init(self) -> bool {
        matches!(
            self,
            IbState::ReqSent
                | IbState::MraReqRcvd
                | IbState::MraReqSent
                | IbState::RepSent
                | IbState::MraRepRcvd
                | IbState::MraRepSent
                | IbState::Established
        )
    }

    /// Whether the kernel provides QP attributes for RTR and RTS (`cm_init_qp_rtr_attr`, `cm_init_qp_rts_attr`).
    pub(crate) const fn gives_ready(self) -> bool {
        matches!(
            self,
            IbState::MraReqSent | IbState::RepSent | IbState::MraRepRcvd | IbState::MraRepSent | IbState::Established
        )
    }
}

/// A sent message without an answer.
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
    /// The peer's device, once known.
    pub(crate) remote_host: Option<HostNo>,
    pub(crate) local_qp_num: u32,
    pub(crate) remote_qp_num: u32,
    pub(crate) retry_count: u8,
    /// The RNR retry count of the peer's message (`cm_req_handler`, `cm_rep_handler`).
    pub(crate) rnr_retry_count: u8,
    /// The number of reads and atomic operations that the peer's message says it starts at a time.
    pub(crate) peer_starts: u8,
    pub(crate) timeout: PathTimeout,
    /// Interval between two transmissions of a message.
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
        timeout: PathTimeout,
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
            rnr_retry_count: 0,
            peer_starts: 0,
            timeout,
            interval: RESPONSE_TIMEOUT,
            outstanding: None,
            time_wait: None,
        }
    }
}

/// The result of entering a peer's connection into its host's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    New,
    /// The peer's communication id is known: a duplicate.
    Known,
    /// This live connection uses the peer's QP number.
    Stale(IdNo),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_follow_the_connection() {
        // INIT attributes exist from the request on, those of RTR and RTS only from the answer on.
        assert!(IbState::ReqSent.gives_init() && !IbState::ReqSent.gives_ready());
        assert!(IbState::MraRepSent.gives_ready() && IbState::MraReqSent.gives_ready());
        assert!(!IbState::Timewait.gives_init() && !IbState::Idle.gives_init());
    }
}
