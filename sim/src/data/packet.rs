//! Messages in flight on the data path.

use std::net::IpAddr;

use cmid_proto::Time;
use cmid_proto::datapath::GlobalRoute;
use cmid_proto::datapath::WcStatus;

use crate::data::space::{Bytes, KeyedRange, Ranges};
use crate::index::QpNo;

/// An item in flight on the data path.
#[derive(Debug)]
pub(crate) enum Transfer {
    Packet(Box<Packet>),
    /// The answer to a packet: the bytes of a read, or its error.
    Answer {
        to: QpNo,
        sequence: u64,
        result: Result<Vec<u8>, WcStatus>,
    },
    /// A datagram.
    Datagram(Box<Datagram>),
    /// All retries of a packet are used up.
    GiveUp {
        qp: QpNo,
        sequence: u64,
    },
    /// The retries for a peer without a receive are used up.
    NotReady {
        qp: QpNo,
        sequence: u64,
        status: WcStatus,
    },
    /// A packet that has found no receive at this QP is repeated.
    Repeat {
        to: QpNo,
        from: QpNo,
        sequence: u64,
    },
    /// A QP repeats its lost packets.
    Resend {
        qp: QpNo,
    },
    /// A write has been copied to memory.
    Copied {
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
    /// Of the sender's request, for the log.
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    /// Where its bytes are, so that a retry reads them again; empty if the device has a copy of its own.
    pub(crate) sources: Ranges,
    /// How often the peer has answered that no receive is posted for it.
    pub(crate) rnr_naks: u8,
    /// How often the sender's ACK timeout has passed in such a wait, and when it passes.
    pub(crate) timeouts: u8,
    pub(crate) timer: Option<Time>,
    /// Whether the sender waits before it repeats it.
    pub(crate) waits: bool,
}

impl Packet {
    /// What it is, for the log.
    pub(crate) fn text(&self) -> String {
        let what = match &self.operation {
            Operation::Send(bytes, _) => format!("send, {} bytes", bytes.len()),
            Operation::Write(_, bytes, _) => format!("write, {} bytes", bytes.len()),
            Operation::Read(range) => format!("read, {} bytes", range.len),
            Operation::CompareSwap(..) | Operation::FetchAdd(..) => "atomic operation".to_owned(),
        };
        format!("{what} (QP {}, request {})", self.from.num, self.wr_id)
    }
}

/// The operation that the peer executes.
#[derive(Debug)]
pub(crate) enum Operation {
    Send(Bytes, Extra),
    /// A write. With `Extra` it consumes a receive.
    Write(KeyedRange, Bytes, Option<Extra>),
    Read(KeyedRange),
    /// The expected and the new value.
    CompareSwap(KeyedRange, u64, u64),
    FetchAdd(KeyedRange, u64),
}

impl Operation {
    /// The bytes that it carries to the peer.
    pub(crate) fn payload(&self) -> usize {
        match self {
            Operation::Send(bytes, _) | Operation::Write(_, bytes, _) => bytes.len(),
            Operation::Read(_) | Operation::CompareSwap(..) | Operation::FetchAdd(..) => 0,
        }
    }
}

/// The fields of a message besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    /// Immediate data.
    pub(crate) imm: Option<u32>,
    /// A remote key that the receiver invalidates.
    pub(crate) invalidate: Option<u32>,
    /// The completion of the receive is a solicited one.
    pub(crate) solicited: bool,
}

/// A datagram and its destination.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: QpNo,
    /// The sender's address.
    pub(crate) source: IpAddr,
    pub(crate) route: GlobalRoute,
    pub(crate) to_qp: u32,
    pub(crate) qkey: u32,
    pub(crate) bytes: Bytes,
    pub(crate) extra: Extra,
}
