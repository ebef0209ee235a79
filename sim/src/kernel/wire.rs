//! The connection manager's messages.

use std::net::{IpAddr, SocketAddr};

use cmid_proto::{ConnParam, Ece, PortSpace};

use crate::fabric::config::PathTimeout;
use crate::index::{CommId, HostNo};

/// Sizes of the private data fields in bytes (`ib_cm.h`, without the RDMA CM's own header in a REQ and a SIDR REQ).
pub(crate) const REQ_DATA: usize = 56;
pub(crate) const REP_DATA: usize = 196;
pub(crate) const REJ_DATA: usize = 148;
pub(crate) const SIDR_REQ_DATA: usize = 180;
pub(crate) const SIDR_REP_DATA: usize = 136;

/// Reasons of a REJ.
pub(crate) mod reason {
    pub(crate) const TIMEOUT: i32 = 4;
    pub(crate) const INVALID_SERVICE_ID: i32 = 8;
    pub(crate) const STALE_CONNECTION: i32 = 10;
    pub(crate) const CONSUMER_DEFINED: i32 = 28;
    pub(crate) const VENDOR_OPTION_NOT_SUPPORTED: i32 = 35;
}

/// Statuses of a SIDR REP (`enum ib_cm_sidr_status`).
pub(crate) mod sidr {
    pub(crate) const UNSUPPORTED: i32 = 1;
    pub(crate) const REJECT: i32 = 2;
}

/// The source and the destination of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The sender's host; with the address it names the device.
    pub(crate) from: HostNo,
    pub(crate) from_ip: IpAddr,
    pub(crate) to_ip: IpAddr,
    pub(crate) from_comm: CommId,
    /// The receiver's communication id, if the sender knows it.
    pub(crate) to_comm: Option<CommId>,
}

impl Head {
    /// The head of an answer. Its communication id is the answering side's own, or [`CommId::NONE`].
    pub(crate) fn answer(&self, from: HostNo) -> Head {
        Head {
            from,
            from_ip: self.to_ip,
            to_ip: self.from_ip,
            from_comm: self.to_comm.unwrap_or(CommId::NONE),
            to_comm: Some(self.from_comm),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A connection request.
    Req(Box<Req>),
    /// Requests more time to answer.
    Mra,
    /// Accepted.
    Rep(Box<Rep>),
    /// Confirms a REP.
    Rtu,
    /// Rejected, with the reason and the private data field.
    Rej {
        /// Whether it rejects a REQ. The sender of the REQ has seen no REP.
        of_req: bool,
        reason: i32,
        private_data: Vec<u8>,
    },
    /// Requests the end of the connection; contains the receiver's QP number.
    Dreq { qp_num: u32 },
    /// Confirms the end.
    Drep,
    /// Requests the datagram QP of a service.
    SidrReq(Box<SidrReq>),
    /// The QP, or an error status.
    SidrRep { answer: SidrAnswer, private_data: Vec<u8> },
}

impl Body {
    /// Whether an id takes it that does not know the peer's communication id yet: a first answer
    /// (`cm_acquire_rejected_id`, `cm_acquire_mraed_id`, `cm_rep_handler`, `cm_sidr_rep_handler`).
    pub(crate) const fn is_first_answer(&self) -> bool {
        match self {
            Body::Mra | Body::Rep(_) | Body::SidrRep { .. } | Body::Rej { of_req: true, .. } => true,
            Body::Rej { of_req: false, .. }
            | Body::Req(_)
            | Body::Rtu
            | Body::Dreq { .. }
            | Body::Drep
            | Body::SidrReq(_) => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Req {
    pub(crate) service: (PortSpace, u16),
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// From the sender's view: the depths are not swapped.
    pub(crate) param: ConnParam,
    pub(crate) timeout: PathTimeout,
    pub(crate) ece: Ece,
    pub(crate) private_data: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct SidrReq {
    pub(crate) service: (PortSpace, u16),
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) private_data: Vec<u8>,
}

/// The answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SidrAnswer {
    Found {
        qp_num: u32,
        qkey: u32,
    },
    /// The status in the message, positive.
    Refused(i32),
}

#[derive(Clone, Debug)]
pub(crate) struct Rep {
    pub(crate) param: ConnParam,
    pub(crate) ece: Ece,
    pub(crate) private_data: Vec<u8>,
}

/// Pads data with zeros to the size of its field.
pub(crate) fn padded(data: &[u8], field: usize) -> Vec<u8> {
    let mut padded = data.to_vec();
    padded.resize(field, 0);
    padded
}

#[cfg(test)]
mod tests {
    use crate::fabric::world::World;
    use cmid_proto::Time;

    use super::*;
    use crate::fabric::config::Config;
    use crate::kernel::host::HostState;

    fn message(to_ip: &str) -> Message {
        let head = Head {
            from: HostNo(0),
            from_ip: "10.0.0.1".parse().unwrap(),
            to_ip: to_ip.parse().unwrap(),
            from_comm: CommId(1),
            to_comm: Some(CommId(2)),
        };
        Message { head, body: Body::Rtu }
    }

    #[test]
    fn messages_are_lost_undeliverable_or_arrive() {
        let mut world = World::new(Config::default());
        for ip in ["10.0.0.1", "10.0.0.2"] {
            world.hosts.push(HostState::new(&[ip.parse().unwrap()]));
        }
        world.rules.set_loss(1.0);
        world.transmit(message("10.0.0.2"));
        world.rules.set_loss(0.0);
        world.transmit(message("10.0.0.3"));
        world.hosts[1].link_up = false;
        world.transmit(message("10.0.0.2"));
        world.advance_to(Time(1_000_000));
        let counters = world.counters;
        assert_eq!((counters.sent, counters.lost, counters.undeliverable), (3, 1, 2));
    }

    #[test]
    fn an_answer_goes_back() {
        let answer = message("10.0.0.2").head.answer(HostNo(1));
        assert_eq!((answer.from, answer.from_comm, answer.to_comm), (HostNo(1), CommId(2), Some(CommId(1))));
        assert_eq!(answer.to_ip, "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
