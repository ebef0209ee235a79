//! What is under way on the data path.

use std::net::IpAddr;

use cmid_proto::GlobalRoute;

use crate::data::completion::WcStatus;
use crate::data::space::KeyedRange;
use crate::index::QpNo;

/// Something of the data path that is under way.
#[derive(Debug)]
pub(crate) enum Transfer {
    Packet(Packet),
    /// The answer to a packet: what a read got, or how it failed.
    Answer {
        to: QpNo,
        sequence: u64,
        result: Result<Vec<u8>, WcStatus>,
    },
    /// A datagram is where it was sent to.
    Datagram(Datagram),
    /// All retries of a packet are used up.
    GiveUp {
        qp: QpNo,
        sequence: u64,
    },
}

/// A request of a connected QP to its peer.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: QpNo,
    pub(crate) to: Option<QpNo>,
    pub(crate) sequence: u64,
    pub(crate) operation: Operation,
}

/// What the peer is to do.
#[derive(Debug)]
pub(crate) enum Operation {
    Send(Vec<u8>),
    Write(KeyedRange, Vec<u8>),
    Read(KeyedRange),
}

/// A datagram, and where it goes.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) from: QpNo,
    /// The sender's address.
    pub(crate) source: IpAddr,
    pub(crate) route: GlobalRoute,
    pub(crate) to_qp: u32,
    pub(crate) qkey: u32,
    pub(crate) bytes: Vec<u8>,
}
