//! What a request of a send queue does.

use std::net::IpAddr;
use std::slice;

use cmid_proto::Service;
use cmid_proto::datapath::GlobalRoute;
use cmid_proto::datapath::WcStatus;

use crate::data::packet::{Datagram, Extra, Operation, Packet, Transfer};
use crate::data::space::{Bytes, KeyedRange, Pins, Ranges, pins};
use crate::data::window::Bind;
use crate::index::QpNo;

/// The local memory of a work request of a send queue.
#[derive(Clone, Debug)]
pub(crate) enum Local {
    /// The sources; their bytes are copied when the device begins with the work request.
    From(Ranges),
    /// Bytes that the post has copied itself, without a key check.
    Inline(Vec<u8>),
    /// The targets of a read or an atomic operation.
    Into(Ranges),
    /// The range of a bind.
    Bound(KeyedRange),
    /// No memory.
    Nothing,
}

/// The action of a work request at the peer.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Send(Extra),
    Write(KeyedRange, Option<Extra>),
    Read(KeyedRange),
    CompareSwap(KeyedRange, u64, u64),
    FetchAdd(KeyedRange, u64),
    Datagram {
        source: IpAddr,
        route: GlobalRoute,
        to_qp: u32,
        qkey: u32,
        extra: Extra,
    },
    /// None: the work request is a command to the local device.
    Command(Command),
}

/// A command to the local device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Bind(Bind),
    /// Removes the binding of the window with this key.
    Invalidate(u32),
}

impl Command {
    /// The status with which Linux 6.1 completes it if the device rejects it.
    pub(crate) fn failure(self) -> WcStatus {
        match self {
            Command::Bind(_) => WcStatus::MW_BIND_ERR,
            Command::Invalidate(_) => WcStatus::LOC_QP_OP_ERR,
        }
    }
}

impl Action {
    pub(crate) fn service(&self) -> Service {
        match self {
            Action::Datagram { .. } => Service::Datagram,
            Action::Send(_)
            | Action::Write(..)
            | Action::Read(_)
            | Action::CompareSwap(..)
            | Action::FetchAdd(..)
            | Action::Command(_) => Service::Connected,
        }
    }

    pub(crate) fn invalidates(&self) -> bool {
        matches!(self, Action::Send(Extra { invalidate: Some(_), .. }))
    }

    pub(crate) fn transfer(
        self,
        from: QpNo,
        to: Option<QpNo>,
        (sequence, wr_id): (u64, u64),
        sources: Ranges,
        bytes: Bytes,
    ) -> Option<Transfer> {
        let operation = match self {
            Action::Send(extra) => Operation::Send(bytes, extra),
            Action::Write(range, extra) => Operation::Write(range, bytes, extra),
            Action::Read(range) => Operation::Read(range),
            Action::CompareSwap(range, compare, swap) => Operation::CompareSwap(range, compare, swap),
            Action::FetchAdd(range, add) => Operation::FetchAdd(range, add),
            Action::Datagram { source, route, to_qp, qkey, extra } => {
                return Some(Transfer::Datagram(Box::new(Datagram { from, source, route, to_qp, qkey, bytes, extra })));
            }
            Action::Command(_) => return None,
        };
        let (rnr_naks, timeouts, timer, waits) = (0, 0, None, false);
        let packet = Packet { from, to, sequence, wr_id, operation, sources, rnr_naks, timeouts, timer, waits };
        Some(Transfer::Packet(Box::new(packet)))
    }
}

impl Local {
    /// Returns where the answer of a read or an atomic operation goes.
    pub(crate) fn targets(&self) -> &[KeyedRange] {
        match self {
            Local::Into(ranges) => ranges,
            Local::From(_) | Local::Inline(_) | Local::Bound(_) | Local::Nothing => &[],
        }
    }

    /// Returns the keys that it pins; none if the device does not access memory.
    pub(crate) fn pins(&self) -> Pins {
        match self {
            Local::From(ranges) | Local::Into(ranges) => pins(ranges),
            Local::Bound(range) => pins(slice::from_ref(range)),
            Local::Inline(_) | Local::Nothing => Pins::new(),
        }
    }
}
