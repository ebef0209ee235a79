//! The send queue of a QP: a work request is queued, executed by the device, and sent to the peer.

use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::datapath::{Caps, To, WcOpcode, WcStatus};
use cmid_proto::{Errno, GlobalRoute, Service};

use crate::data::ah::Ah;
use crate::data::memory::Memory;
use crate::data::packet::{Datagram, Extra, Operation, Packet, Transfer};
use crate::data::pair_state::PairState;
use crate::data::queues::{Filed, Pending, Sent};
use crate::data::receive::Receive;
use crate::data::space::KeyedRange;
use crate::fabric::config::Flavour;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::{PdNo, QpNo};
use crate::kernel::due::Due;

/// The destination of a datagram.
pub(crate) type Peer<'a> = To<'a, Ah>;

/// A work request of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) local: Local,
    /// Whether it has a completion even if it succeeds.
    pub(crate) signaled: bool,
    pub(crate) action: Action,
}

/// The local memory of a work request of a send queue.
#[derive(Clone, Debug)]
pub(crate) enum Local {
    /// The sources; their bytes are copied when the work request is posted.
    From(Vec<KeyedRange>),
    /// The targets of a read or an atomic operation.
    Into(Vec<KeyedRange>),
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
    Nothing,
}

impl Action {
    fn service(&self) -> Service {
        match self {
            Action::Datagram { .. } => Service::Datagram,
            Action::Send(_)
            | Action::Write(..)
            | Action::Read(_)
            | Action::CompareSwap(..)
            | Action::FetchAdd(..)
            | Action::Nothing => Service::Connected,
        }
    }

    fn transfer(self, from: QpNo, to: Option<QpNo>, sequence: u64, bytes: Vec<u8>) -> Option<Transfer> {
        let operation = match self {
            Action::Send(extra) => Operation::Send(bytes, extra),
            Action::Write(range, extra) => Operation::Write(range, bytes, extra),
            Action::Read(range) => Operation::Read(range),
            Action::CompareSwap(range, compare, swap) => Operation::CompareSwap(range, compare, swap),
            Action::FetchAdd(range, add) => Operation::FetchAdd(range, add),
            Action::Datagram { source, route, to_qp, qkey, extra } => {
                return Some(Transfer::Datagram(Datagram { from, source, route, to_qp, qkey, bytes, extra }));
            }
            Action::Nothing => return None,
        };
        Some(Transfer::Packet(Packet { from, to, sequence, operation, not_ready: false }))
    }
}

/// The result of a posted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Done,
    /// The completion will have an error status.
    Failed,
}

impl Local {
    /// Returns the keys that it pins; none if the device does not access memory.
    fn pins(&self, caps: &Caps) -> Vec<u32> {
        match self {
            Local::From(ranges) if caps_inline(caps, ranges) => Vec::new(),
            Local::From(ranges) | Local::Into(ranges) => ranges.iter().map(|range| range.key).collect(),
            Local::Bound(range) => vec![range.key],
            Local::Nothing => Vec::new(),
        }
    }
}

/// Whether the post copies a send of these ranges.
fn caps_inline(caps: &Caps, ranges: &[KeyedRange]) -> bool {
    ranges.iter().map(|range| range.len).sum::<usize>() <= caps.max_inline as usize
}

impl World {
    /// Queues a work request and sends it to the peer of a connected QP. A datagram is sent and complete at once.
    pub(crate) fn post(&mut self, qp: QpNo, work: Work) -> Result<(), Errno> {
        let service = work.action.service();
        let Some(pending) = self.accept_work(qp, service, &work)? else { return Ok(()) };
        // The device executes it at once and copies the bytes now.
        let Some(bytes) = self.gather(qp, &work.local) else {
            self.fail_work(qp, &pending, WcStatus::LOC_PROT_ERR);
            return Ok(());
        };
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return Ok(()) };
        let (sequence, peer) = (pending.sequence, pair.peer);
        pair.sends.push_back(pending);
        if service == Service::Datagram {
            self.complete_locally(qp, sequence, LOCAL_WORK);
        }
        let due = self.now.after(self.config.latency);
        if let Some(transfer) = work.action.transfer(qp, peer, sequence, bytes) {
            self.timers.arm(due, Due::Data(transfer));
        }
        Ok(())
    }

    /// Returns the bytes of a send or write; `None` if the hardware rejects the memory.
    fn gather(&self, qp: QpNo, local: &Local) -> Option<Vec<u8>> {
        let pair = self.queues.pairs.get(&qp)?;
        let Local::From(ranges) = local else { return Some(Vec::new()) };
        // The program copies inline bytes itself, without a key check.
        let inline = caps_inline(&pair.caps, ranges);
        let mut bytes = Vec::new();
        for &range in ranges {
            let part = if inline {
                self.memory.space.bytes(range.stretch())
            } else {
                self.memory.for_local_read(pair.pd, range)
            };
            bytes.extend_from_slice(part?);
        }
        Some(bytes)
    }

    /// Queues a command to the device itself. The device executes it at once. The completion has the same delay as a
    /// request to the peer, and it is not before those of earlier requests, because completions keep their order. If `obey` returns `None`, the work request fails:
    /// Linux 6.1 completes it with `failure`, after those before it; 6.12 moves the QP to its error state first, which
    /// flushes it like the others (`rxe_requester`, `rxe_completer`).
    pub(crate) fn post_command(
        &mut self,
        qp: QpNo,
        (wr_id, opcode, local): (u64, WcOpcode, Local),
        failure: WcStatus,
        obey: impl FnOnce(&mut Memory, PdNo) -> Option<()>,
    ) -> Result<Posted, Errno> {
        let work = Work { wr_id, opcode, local, signaled: true, action: Action::Nothing };
        let Some(pending) = self.accept_work(qp, Service::Connected, &work)? else { return Ok(Posted::Failed) };
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return Ok(Posted::Failed) };
        if obey(&mut self.memory, pair.pd).is_none() {
            match self.config.flavour {
                Flavour::Linux6_1 => self.fail_work(qp, &pending, failure),
                Flavour::Linux6_12 => {
                    pair.sends.push_back(pending);
                    self.qp_to_error(qp);
                }
            }
            return Ok(Posted::Failed);
        }
        let sequence = pending.sequence;
        pair.sends.push_back(pending);
        self.sweep = true;
        self.complete_locally(qp, sequence, self.config.latency.saturating_mul(2));
        Ok(Posted::Done)
    }

    /// Queues a work request and pins its regions, if the QP accepts it. `None` if it was flushed at once.
    fn accept_work(&mut self, qp: QpNo, service: Service, work: &Work) -> Result<Option<Pending>, Errno> {
        let pair = self.queues.pairs.get_mut(&qp).filter(|pair| pair.service == service).ok_or(Errno::EINVAL)?;
        let is_error = match pair.state {
            PairState::Init | PairState::Rtr => return Err(Errno::EINVAL),
            PairState::Rts => false,
            PairState::Err => true,
        };
        if pair.send_room() == 0 {
            return Err(Errno::ENOMEM);
        }
        let pins = work.local.pins(&pair.caps);
        let targets = if let Local::Into(ranges) = &work.local { ranges.clone() } else { Vec::new() };
        let sequence = pair.file(Filed::new(pins.clone()));
        let &Work { wr_id, opcode, signaled, .. } = work;
        let pending = Pending { sequence, wr_id, opcode, signaled, pins, targets, is_executed: false };
        if is_error {
            self.finish_send(qp, &pending, Sent::failed(WcStatus::WR_FLUSH_ERR));
            return Ok(None);
        }
        Ok(Some(pending))
    }

    /// Fails a work request before it is sent.
    fn fail_work(&mut self, qp: QpNo, pending: &Pending, status: WcStatus) {
        self.finish_send(qp, pending, Sent::failed(status));
        self.qp_to_error(qp);
    }

    /// Completes a work request after this time, without an answer of the peer.
    fn complete_locally(&mut self, qp: QpNo, sequence: u64, after: Duration) {
        let done = Transfer::Answer { to: qp, sequence, result: Ok(Vec::new()) };
        self.timers.arm(self.now.after(after), Due::Data(done));
    }

    pub(crate) fn post_receive(&mut self, qp: QpNo, receive: Receive) -> Result<(), Errno> {
        let pair = self.queues.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        if pair.receive_room()? == 0 {
            return Err(Errno::ENOMEM);
        }
        pair.file_receive(&receive);
        if pair.state == PairState::Err {
            self.flush_receive(qp, &receive);
            return Ok(());
        }
        pair.receives.push_back(receive);
        self.run_inbound(qp);
        Ok(())
    }
}
