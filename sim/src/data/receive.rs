//! Receives, and the queues that they are posted to: that of a QP, or one that QPs share.

use std::borrow::Borrow;
use std::collections::VecDeque;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{
    Access, BatchError, Completion, Lent, Parts, PostCall, PostError, PostReason, Returns, Sge, Unposted,
    UnpostedBatch, WcFlags, WcOpcode, WcStatus,
};

use crate::data::blocks::{self, Piece};
use crate::data::mr::Mr;
use crate::data::packet::Extra;
use crate::data::post::{Queue, fitting, ranges};
use crate::data::qp::PairState;
use crate::data::queues::Queues;
use crate::data::space::{Pins, Ranges, Scatter, pins};
use crate::data::work::{Batch, Stopped};
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{QpNo, SrqNo};

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Receive {
    /// Its number in its queue, counted from 1.
    pub(crate) sequence: u64,
    pub(crate) wr_id: u64,
    pub(crate) ranges: Ranges,
    /// Whether its post was refused: its completion is not for the program.
    pub(crate) is_withdrawn: bool,
}

impl Receive {
    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.len).sum()
    }

    /// Returns the keys that it pins.
    pub(crate) fn pins(&self) -> Pins {
        pins(&self.ranges)
    }
}

/// The outcome of a receive. The QP is not in the completion yet.
pub(crate) struct Received {
    pub(crate) completion: Completion,
    /// Whether it notifies a CQ that is armed for solicited completions.
    pub(crate) solicited: bool,
    /// The bytes that the poll copies to memory.
    pub(crate) scatter: Vec<Scatter>,
}

/// Received bytes.
#[derive(Debug, Default)]
pub(crate) struct Put {
    pub(crate) byte_len: u32,
    /// Bytes that the poll copies.
    pub(crate) scatter: Vec<Scatter>,
}

impl Receive {
    /// Returns the outcome of a receive.
    pub(crate) fn ended(&self, outcome: Result<Put, WcStatus>, opcode: WcOpcode, extra: Extra) -> Received {
        // A failed completion tells the queue only.
        let (status, opcode, put) = match outcome {
            Ok(put) => (WcStatus::SUCCESS, opcode, put),
            Err(status) => (status, WcOpcode::RECV, Put::default()),
        };
        let Put { byte_len, scatter } = put;
        let mut completion = Completion { wr_id: self.wr_id, status, opcode, byte_len, ..Completion::default() };
        if status == WcStatus::SUCCESS {
            // rxe sets it for every receive (`do_complete`).
            completion.flags |= WcFlags::GRH;
            if let Some(imm) = extra.imm {
                completion.flags |= WcFlags::WITH_IMM;
                completion.imm_data = imm.to_be();
            }
            if let Some(rkey) = extra.invalidate {
                // The number of the kernel's `IB_WC_WITH_INVALIDATE`, which rxe copies to user space.
                completion.flags |= WcFlags::IP_CSUM_OK;
                completion.imm_data = rkey;
            }
        }
        Received { completion, solicited: extra.solicited, scatter }
    }
}

/// A queue of receives.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// The maximum number of receives, and of the ranges of each.
    pub(crate) max: u32,
    max_sge: u32,
    /// Those that are not taken, oldest first.
    receives: VecDeque<Receive>,
    /// Those whose completion is not polled, oldest first: the number of each, and the keys that it pins.
    filed: VecDeque<(u64, Pins)>,
    /// The number of the last one, and of the last one that the doorbell was rung for.
    sequence: u64,
    rung: u64,
}

impl RecvQueue {
    pub(crate) fn new(max: u32, max_sge: u32) -> Self {
        RecvQueue { max, max_sge, receives: VecDeque::new(), filed: VecDeque::new(), sequence: 0, rung: 0 }
    }

    /// Returns the number of receives without a polled completion.
    pub(crate) fn unpolled(&self) -> u32 {
        u32::try_from(self.filed.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn pins(&self, key: u32) -> bool {
        self.filed.iter().any(|(_, pins)| pins.contains(&key))
    }

    /// Adds receives. Without the doorbell they are withdrawn, and the device takes them after the next doorbell.
    fn post(&mut self, batch: Batch<Receive>, is_rung: bool) {
        for receive in batch {
            self.sequence += 1;
            self.filed.push_back((self.sequence, receive.pins()));
            self.receives.push_back(Receive { sequence: self.sequence, is_withdrawn: !is_rung, ..receive });
        }
        if is_rung {
            self.rung = self.sequence;
        }
    }

    /// Returns the number of receives that messages can take.
    pub(crate) fn ready(&self) -> u64 {
        self.receives.len() as u64 + self.rung - self.sequence
    }

    /// Returns the receive for the next message.
    pub(crate) fn next(&self) -> Option<&Receive> {
        self.receives.front().filter(|receive| receive.sequence <= self.rung)
    }

    pub(crate) fn take(&mut self) -> Option<Receive> {
        self.next()?;
        self.receives.pop_front()
    }

    /// Takes all receives, also those that the doorbell was refused for.
    pub(crate) fn drain(&mut self) -> VecDeque<Receive> {
        self.rung = self.sequence;
        std::mem::take(&mut self.receives)
    }

    /// Retires a receive when its completion is polled. Most are the oldest one.
    pub(crate) fn polled(&mut self, sequence: u64) {
        if self.filed.front().is_some_and(|&(first, _)| first == sequence) {
            self.filed.pop_front();
        } else {
            self.filed.retain(|&(number, _)| number != sequence);
        }
    }

    pub(super) fn is_over(&self, sequence: u64) -> bool {
        self.filed.iter().take_while(|(number, _)| *number <= sequence).all(|(number, _)| *number != sequence)
    }
}

/// Whose receives they are: those of a QP, or of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvOf {
    Qp(QpNo),
    Srq(SrqNo),
}

impl RecvOf {
    fn stopped(self, Stopped { posted, reason, .. }: Stopped) -> BatchError {
        let (call, num) = match self {
            RecvOf::Qp(qp) => (PostCall::Recv, qp.num),
            RecvOf::Srq(srq) => (PostCall::SrqRecv, srq.number()),
        };
        BatchError { posted, error: PostError::new(call, num, reason) }
    }
}

impl Queues {
    pub(super) fn recv_queue(&self, of: RecvOf) -> Option<&RecvQueue> {
        match of {
            RecvOf::Qp(qp) => self.pairs.get(&qp).map(|pair| &pair.receives),
            RecvOf::Srq(srq) => self.srqs.get(srq).ok().map(|srq| &srq.receives),
        }
    }

    pub(crate) fn recv_queue_mut(&mut self, of: RecvOf) -> Option<&mut RecvQueue> {
        match of {
            RecvOf::Qp(qp) => self.pairs.get_mut(&qp).map(|pair| &mut pair.receives),
            RecvOf::Srq(srq) => self.srqs.get_mut(srq).ok().map(|srq| &mut srq.receives),
        }
    }

    /// What a post of receives checks them by: `gone` if the queue is gone. A QP that uses a shared receive queue has none of
    /// its own (`rxe_post_recv` of librxe).
    fn receives_of(&self, of: RecvOf, gone: Result<Queue, PostReason>) -> Result<Queue, PostReason> {
        let found = match of {
            RecvOf::Qp(qp) => self.pairs.get(&qp).map(|pair| (pair.srq, pair.pd, &pair.receives)),
            RecvOf::Srq(srq) => self.srqs.get(srq).ok().map(|srq| (None, srq.pd, &srq.receives)),
        };
        let Some((srq, pd, queue)) = found else { return gone };
        if srq.is_some() {
            return Err(PostReason::HasSrq);
        }
        let &RecvQueue { max, max_sge, sequence: last, .. } = queue;
        let room = max.saturating_sub(queue.unpolled());
        Ok(Queue { pd, max_sge, max, room, last, is_unanswered: false, is_stuck: false })
    }
}

impl World {
    /// `ibv_post_recv` or `ibv_post_srq_recv` of receives that the queue has room for. If the kernel refuses the doorbell, they
    /// are in the queue, and the device takes them after the next doorbell.
    fn post_receives(&mut self, of: RecvOf, batch: Batch<Receive>) -> Result<usize, Stopped> {
        let host = match of {
            RecvOf::Qp(qp) => qp.host,
            RecvOf::Srq(srq) => self.queues.srqs.get(srq).map_err(|_| PostReason::Gone)?.device.host,
        };
        let (rung, count) = (self.doorbell(host), batch.len());
        self.queues.recv_queue_mut(of).ok_or(PostReason::Gone)?.post(batch, rung.is_ok());
        rung.map_err(|reason| Stopped { posted: 0, filed: count, reason })?;
        match of {
            RecvOf::Qp(qp) => match self.queues.pairs.get(&qp) {
                Some(pair) if pair.state == PairState::Err => self.flush_receives(qp),
                Some(pair) if !pair.inbound.is_empty() => self.run_inbound(qp),
                Some(_) | None => {}
            },
            // Its QPs may have packets that wait for a receive.
            RecvOf::Srq(srq) => {
                let waiting = self.queues.pairs.keys_of(|_, pair| pair.srq == Some(srq) && !pair.inbound.is_empty());
                waiting.into_iter().for_each(|qp| self.run_inbound(qp));
            }
        }
        Ok(count)
    }
}

/// Creates a receive for a queue.
fn receive<'a>(
    fabric: &Fabric,
    queue: Queue,
    wr_id: u64,
    sges: impl IntoIterator<Item = impl Borrow<Sge<'a, Mr>>>,
) -> Result<Receive, PostReason> {
    let ranges = ranges(fabric, queue, sges, Access::LOCAL_WRITE)?;
    Ok(Receive { sequence: 0, wr_id, ranges, is_withdrawn: false })
}

/// Posts receives. Those for a queue that is gone are checked by `gone`.
pub(super) fn post<'a, L: AsRef<[Sge<'a, Mr>]>>(
    fabric: &Fabric,
    (of, gone): (RecvOf, Result<Queue, PostReason>),
    requests: impl IntoIterator<Item = (u64, L)>,
) -> Result<usize, BatchError> {
    let queue = fabric.with(|world| world.queues.receives_of(of, gone));
    let posted = queue.map_err(Stopped::from).and_then(|queue| {
        let receive = |(wr_id, sges): (u64, L)| receive(fabric, queue, wr_id, sges.as_ref());
        let batch = fitting(queue, requests.into_iter().map(receive))?;
        fabric.with(|world| world.post_receives(of, batch))
    });
    posted.map_err(|stopped| of.stopped(stopped))
}

/// The same for blocks. Returns those that are not posted and that the device does not execute.
pub(super) fn post_blocks(
    fabric: &Fabric,
    (of, gone): (RecvOf, Result<Queue, PostReason>),
    lent: &mut Lent<Piece>,
    mut requests: Batch<(u64, Parts<Piece>)>,
) -> Result<usize, UnpostedBatch<Piece>> {
    let is_over = |number| fabric.with(|world| world.queues.is_receive_over(of, number));
    let queue = fabric.with(|world| world.queues.receives_of(of, gone)).and_then(|queue| {
        lent.check_room(requests.len(), is_over)?;
        requests.iter().try_for_each(|(_, parts)| blocks::check(parts, true))?;
        fabric.with(|world| requests.iter().for_each(|(_, parts)| blocks::flush(parts, fabric, world)));
        Ok(queue)
    });
    let posted = queue.map_err(Stopped::from).and_then(|queue| {
        let receive =
            |(wr_id, parts): &(u64, Parts<Piece>)| receive(fabric, queue, *wr_id, blocks::sges(parts, queue.pd));
        let batch = fitting(queue, requests.iter().map(receive))?;
        let posted = fabric.with(|world| world.post_receives(of, batch));
        let filed = requests.drain(..Stopped::filed(posted));
        blocks::lend(lent, posted, queue.last, filed.map(|(wr_id, parts)| (wr_id, Returns::ByCompletion, parts)));
        posted
    });
    let unposted =
        |stopped| ErrorWith::new(requests.into_iter().map(|(_, parts)| parts).collect(), of.stopped(stopped));
    posted.map_err(unposted)
}

/// Returns the error of a batch of one request.
pub(super) fn only(batch: UnpostedBatch<Piece>) -> Unposted<Piece> {
    Unposted { error: batch.error.error, given: batch.given.into_iter().next() }
}

/// Returns requests as they are posted.
pub(super) fn batch<L: Into<Parts<Piece>>>(requests: impl IntoIterator<Item = (u64, L)>) -> Batch<(u64, Parts<Piece>)> {
    requests.into_iter().map(|(wr_id, list)| (wr_id, list.into())).collect()
}

/// Returns the blocks of the receive of a completion.
pub(super) fn reclaim(
    fabric: &Fabric,
    of: RecvOf,
    lent: &mut Lent<Piece>,
    completion: &Completion,
) -> Option<Parts<Piece>> {
    let is_over = |number| fabric.with(|world| world.queues.is_receive_over(of, number));
    lent.reclaim(completion, is_over).map(blocks::loaded)
}
