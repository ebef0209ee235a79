//! The queue pairs and completion queues of all hosts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmid_proto::datapath::{AckTimeout, Caps, CreateReason, QpAttrs, RnrTimer, Unpolled, WcStatus};
use cmid_proto::{Errno, Service, Time};

use crate::data::comp_channel::Notices;
use crate::data::cq::{CqState, Ready};
use crate::data::late::Copying;
use crate::data::packet::Packet;
use crate::data::pending::{Filed, Order, Pending, retire};
use crate::data::qp::PairState;
use crate::data::receive::{RecvOf, RecvQueue};
use crate::data::space::Scatter;
use crate::data::srq::Srqs;
use crate::fabric::table::Table;
use crate::index::{CqNo, HostNo, MwNo, PdNo, QpNo, SrqNo};
use crate::kernel::gid::Gid;

/// The outcome of a posted send, read or write.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) status: WcStatus,
    pub(crate) byte_len: u32,
    /// The bytes that the poll copies to memory.
    pub(crate) scatter: Vec<Scatter>,
}

impl Sent {
    /// Returns a failure with this status.
    pub(crate) fn failed(status: WcStatus) -> Self {
        Sent { status, byte_len: 0, scatter: Vec::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) service: Service,
    pub(crate) state: PairState,
    pub(crate) pd: PdNo,
    pub(crate) send_cq: CqNo,
    pub(crate) recv_cq: CqNo,
    /// The shared receive queue, if it uses one.
    pub(crate) srq: Option<SrqNo>,
    pub(crate) caps: Caps,
    pub(crate) peer: Option<QpNo>,
    /// How many reads and atomic operations the peer answers at a time, by its `responder_resources`, once it is known. The next one waits.
    pub(crate) reads_at_once: Option<usize>,
    /// Whether it answers reads and atomic operations of the peer.
    pub(super) answers_reads: bool,
    /// The attributes that the program has chosen for RTR and RTS.
    pub(crate) chosen: QpAttrs,
    /// When the peer repeats a message that has found no receive here.
    pub(crate) min_rnr_timer: RnrTimer,
    /// The time between two retries of a packet that is not acked.
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_count: u8,
    /// The number of retries for a message that finds no receive; 7 means no limit.
    pub(crate) rnr_retry_count: u8,
    pub(crate) sends: VecDeque<Box<Pending>>,
    /// Its own receives; none if it uses a shared receive queue.
    pub(crate) receives: RecvQueue,
    /// The requests of the send queue that are not retired, oldest first.
    pub(super) filed: VecDeque<Filed>,
    /// The order in which they complete.
    pub(crate) order: Order,
    /// The last request of the send queue that the doorbell was rung for.
    pub(crate) rung: u64,
    /// Packets of the peer that cannot be executed yet: no receive is posted, or the QP is not ready.
    pub(crate) inbound: VecDeque<Box<Packet>>,
    /// The packet before them, which is being copied.
    pub(super) copying: Option<Copying>,
    /// Packets to the peer that have not arrived.
    pub(crate) unanswered: VecDeque<Box<Packet>>,
    /// Whether they are repeated after the timeout: a rule has lost the first one.
    pub(crate) repeats: bool,
    /// When the last packet arrives at the peer. No later one overtakes it.
    pub(crate) last_arrival: Time,
    /// When its last answer to a packet of the peer arrives there.
    pub(crate) last_answer: Time,
    /// Whether a packet of the peer is missing and will not be sent again. Packets after it are out of sequence.
    pub(crate) gap: bool,
    /// The multicast groups that a datagram QP is attached to.
    pub(crate) groups: BTreeSet<Gid>,
    /// The last request of the send queue.
    pub(crate) sequence: u64,
    /// Whether it belongs to an id; otherwise it is destroyed with its handle.
    pub(crate) attached: bool,
    /// Whether its handle exists.
    pub(crate) held: bool,
    /// Whether it is destroyed with the last window that is bound through it.
    pub(crate) doomed: bool,
}

impl Pair {
    /// Creates a QP of an id, without work requests. A connected QP starts in INIT; a datagram QP is ready at once.
    pub(crate) fn new(service: Service, pd: PdNo, send_cq: CqNo, recv_cq: CqNo, caps: Caps) -> Self {
        Pair {
            service,
            state: match service {
                Service::Connected => PairState::Init,
                Service::Datagram => PairState::Rts,
            },
            pd,
            send_cq,
            recv_cq,
            srq: None,
            caps,
            peer: None,
            reads_at_once: None,
            answers_reads: true,
            chosen: QpAttrs::default(),
            min_rnr_timer: RnrTimer::LONGEST,
            timeout: AckTimeout::NEVER,
            retry_count: 0,
            rnr_retry_count: 0,
            sends: VecDeque::new(),
            receives: RecvQueue::new(caps.max_recv_wr, caps.max_recv_sge),
            filed: VecDeque::new(),
            order: Order::OfPosts,
            rung: 0,
            inbound: VecDeque::new(),
            copying: None,
            unanswered: VecDeque::new(),
            repeats: false,
            last_arrival: Time::ZERO,
            last_answer: Time::ZERO,
            gap: false,
            groups: BTreeSet::new(),
            sequence: 0,
            attached: true,
            held: true,
            doomed: false,
        }
    }

    /// Returns the number of requests that the send queue has room for.
    pub(crate) fn send_room(&self) -> u32 {
        self.caps.max_send_wr.saturating_sub(self.unpolled().sends)
    }

    /// Returns the number of its requests that are not over.
    pub(crate) fn unpolled(&self) -> Unpolled {
        let sends = u32::try_from(self.filed.len()).unwrap_or(u32::MAX);
        Unpolled { sends, receives: self.receives.unpolled() }
    }

    /// Adds a request to the send queue and pins its regions.
    pub(crate) fn file(&mut self, mut pending: Box<Pending>) {
        self.sequence += 1;
        let (sequence, pins) = (self.sequence, pending.local.pins());
        self.filed.push_back(Filed { sequence, pins });
        pending.sequence = sequence;
        self.sends.push_back(pending);
    }

    fn pins(&self, key: u32) -> bool {
        self.receives.pins(key) || self.filed.iter().any(|filed| filed.pins.contains(&key))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) cqs: Table<CqNo, CqState>,
    pub(crate) pairs: Table<QpNo, Box<Pair>>,
    pub(crate) srqs: Srqs,
    /// The QP of each window's last bind.
    bound_by: BTreeMap<MwNo, QpNo>,
    next_cq: u64,
}

impl Queues {
    pub(crate) fn add_cq(&mut self, depth: u32, entries_each: usize, notices: Notices) -> CqNo {
        self.next_cq += 1;
        let no = CqNo(self.next_cq);
        self.cqs.insert(no, CqState::new(no, depth, entries_each, notices));
        no
    }

    /// `ibv_modify_qp`, for the transitions that librdmacm makes.
    pub(crate) fn modify(&mut self, qp: QpNo, to: PairState) -> Result<(), Errno> {
        let pair = self.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        let legal = match to {
            PairState::Init => pair.state == PairState::Init,
            PairState::Rtr => pair.state == PairState::Init,
            PairState::Rts => matches!(pair.state, PairState::Rtr | PairState::Rts),
            PairState::Err => true,
            PairState::Suspended | PairState::Closing => false,
        };
        if !legal {
            return Err(Errno::EINVAL);
        }
        pair.state = to;
        Ok(())
    }

    /// The peer answers `depth` reads and atomic operations at a time, which devices round up to a power of two
    /// (`rxe_qp_from_attr`, `siw_qp_readq_init`).
    pub(crate) fn set_peer(
        &mut self,
        qp: QpNo,
        peer: Option<(HostNo, u32)>,
        attrs: (u8, u8, u8),
        depth: u8,
        answers_reads: bool,
    ) -> Result<(), Errno> {
        let pair = self.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        pair.answers_reads = answers_reads;
        pair.peer = peer.map(|(host, num)| QpNo { host, num });
        pair.reads_at_once = Some(if depth == 0 { 0 } else { usize::from(depth).next_power_of_two() });
        pair.set_attrs(attrs)
    }

    /// Drops the packets of a QP that wait at its peer: in the error state the QP does not send them again.
    pub(crate) fn recall(&mut self, qp: QpNo, peer: Option<QpNo>) {
        if let Some(peer) = peer.and_then(|peer| self.pairs.get_mut(&peer)) {
            let arrived = peer.inbound.len();
            peer.inbound.retain(|packet| packet.from != qp);
            peer.gap |= peer.inbound.len() < arrived;
        }
    }

    /// `ibv_attach_mcast`; idempotent.
    pub(crate) fn attach(&mut self, qp: QpNo, group: Gid) -> Result<(), Errno> {
        let pair = self.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        pair.groups.insert(group);
        Ok(())
    }

    /// `ibv_detach_mcast`; no effect if it is not attached.
    pub(crate) fn detach(&mut self, qp: QpNo, group: Gid) {
        if let Some(pair) = self.pairs.get_mut(&qp) {
            pair.groups.remove(&group);
        }
    }

    /// Whether a CQ has an unpolled completion, or a QP of it has a work request without one.
    pub(crate) fn has_work(&self, cq: CqNo) -> bool {
        let reports = |pair: &Pair| {
            (pair.send_cq == cq && !pair.filed.is_empty()) || (pair.recv_cq == cq && pair.receives.unpolled() > 0)
        };
        self.cqs.get(&cq).is_some_and(CqState::has_completions) || self.pairs.any(|pair| reports(pair))
    }

    /// Whether an unpolled completion pins a region: of an existing QP, or of a destroyed one that has left the
    /// completion.
    pub(crate) fn pins(&self, pd: PdNo, key: u32) -> bool {
        self.pairs.any(|pair| pair.pd == pd && pair.pins(key))
            || self.srqs.pins(pd, key)
            || self.cqs.any(|cq| cq.pins(pd, key))
    }

    /// Reserves room in the CQs of a new QP.
    pub(crate) fn reserve(&mut self, qp: QpNo, pair: &Pair) -> Result<(), CreateReason> {
        let [send, recv] = self.shares(pair)?;
        let shares = [(pair.send_cq, None, send), (pair.recv_cq, pair.srq, recv)];
        let reserved = shares.into_iter().try_for_each(|(cq, srq, work_requests)| {
            let cq = self.cqs.get_mut(&cq).ok_or(Errno::EINVAL)?;
            cq.reserve(qp, srq, work_requests).map_err(CreateReason::Overrun)
        });
        if reserved.is_err() {
            self.leave(qp, Some(pair), true);
        }
        reserved
    }

    /// Checks that the CQs of a new QP have room for it.
    pub(crate) fn fits(&self, pair: &Pair) -> Result<(), CreateReason> {
        let room = |cq| self.cqs.get(&cq).map(|cq| cq.room).ok_or(Errno::EINVAL);
        let [sends, receives] = self.shares(pair)?;
        let mut send = room(pair.send_cq)?;
        send.reserve(sends).map_err(CreateReason::Overrun)?;
        let mut recv = if pair.recv_cq == pair.send_cq { send } else { room(pair.recv_cq)? };
        recv.reserve(receives).map_err(CreateReason::Overrun)
    }

    /// Returns the numbers of entries that a new QP reserves in its CQs. A shared receive queue reserves its own once
    /// in each CQ.
    fn shares(&self, pair: &Pair) -> Result<[u32; 2], Errno> {
        let receives = match pair.srq {
            None => pair.caps.max_recv_wr,
            Some(srq) if self.cqs.get(&pair.recv_cq).is_some_and(|cq| cq.has_share(srq)) => 0,
            Some(srq) => self.srqs.get(srq)?.receives.max,
        };
        Ok([pair.caps.max_send_wr, receives])
    }

    /// Removes the completions of a destroyed QP, or leaves them in their CQs. If the QP was removed with its device,
    /// its CQs are not known any more.
    pub(crate) fn leave(&mut self, qp: QpNo, pair: Option<&Pair>, remove: bool) {
        match pair {
            Some(pair) => self.leave_cqs(qp, [pair.send_cq, pair.recv_cq], remove),
            None => self.leave_cqs(qp, self.cqs.keys_of(|_, _| true), remove),
        }
    }

    fn leave_cqs(&mut self, qp: QpNo, cqs: impl IntoIterator<Item = CqNo>, remove: bool) {
        for cq in cqs {
            if let Some(cq) = self.cqs.get_mut(&cq) {
                cq.leave(qp, remove);
            }
        }
    }

    /// Whether a window holds a QP.
    pub(crate) fn has_windows(&self, qp: QpNo) -> bool {
        self.bound_by.values().any(|&by| by == qp)
    }

    /// Records the QP of a window's bind, or that the window is gone. Returns a QP that was waiting for this and is
    /// to be destroyed now.
    #[must_use]
    pub(crate) fn rebind(&mut self, window: MwNo, by: Option<QpNo>) -> Option<QpNo> {
        let before = match by {
            Some(by) => self.bound_by.insert(window, by),
            None => self.bound_by.remove(&window),
        };
        before.filter(|&qp| !self.has_windows(qp) && self.pairs.get(&qp).is_some_and(|pair| pair.doomed))
    }

    /// Removes the windows of a host; they no longer hold QPs.
    pub(crate) fn drop_windows(&mut self, host: HostNo) {
        self.bound_by.retain(|_, by| by.host != host);
    }

    /// Takes the next completion of a CQ, and retires its work request: a receive, or a request of a send queue and those that
    /// end with it.
    pub(crate) fn take(&mut self, cq: CqNo) -> Option<Ready> {
        let ready = self.cqs.get_mut(&cq)?.take()?;
        if let Some(of) = ready.receive_of {
            if let Some(queue) = self.recv_queue_mut(of) {
                queue.polled(ready.sequence);
            }
        } else if let Some(pair) = self.pairs.get_mut(&ready.qp) {
            retire(&mut pair.filed, ready.sequence, pair.order);
        }
        Some(ready)
    }
}

impl Queues {
    /// Whether a QP exists, or has left completions; or an SRQ exists, or a QP has left completions of its receives.
    pub(crate) fn may_complete(&self, of: RecvOf) -> bool {
        match of {
            RecvOf::Qp(qp) => self.pairs.contains_key(&qp) || self.cqs.any(|cq| cq.holds(|ready| ready.qp == qp)),
            RecvOf::Srq(srq) => {
                self.srqs.get(srq).is_ok() || self.cqs.any(|cq| cq.holds(|ready| ready.receive_of == Some(of)))
            }
        }
    }

    /// Whether a receive is no longer in flight.
    pub(crate) fn is_receive_over(&self, of: RecvOf, sequence: u64) -> bool {
        self.recv_queue(of).map_or_else(|| !self.may_complete(of), |queue| queue.is_over(sequence))
    }

    /// Whether a request of the send queue is no longer in flight.
    pub(crate) fn is_send_over(&self, qp: QpNo, sequence: u64) -> bool {
        self.pairs.get(&qp).map_or_else(
            || !self.may_complete(RecvOf::Qp(qp)),
            |pair| pair.filed.binary_search_by_key(&sequence, |filed| filed.sequence).is_err(),
        )
    }

    /// Whether one of these requests may still be executed, as far as a program knows: it is not polled, and its QP is on
    /// its id, which moves the QP to its error state when it ends.
    pub(crate) fn may_execute(&self, requests: &[(QpNo, u64)]) -> bool {
        let may = |&(qp, sequence): &(QpNo, u64)| {
            self.pairs.get(&qp).is_some_and(|pair| pair.attached) && !self.is_send_over(qp, sequence)
        };
        requests.iter().any(may)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_goes_from_init_by_rtr_to_rts_and_from_everywhere_to_err() {
        use PairState::{Err, Init, Rtr, Rts};
        let legal = [(Init, Init), (Init, Rtr), (Rtr, Rts), (Rts, Rts)];
        for from in [Init, Rtr, Rts, Err] {
            for to in [Init, Rtr, Rts, Err] {
                let mut queues = Queues::default();
                let qp = QpNo { host: HostNo(0), num: 1 };
                let fresh = Pair::new(Service::Connected, PdNo(0), CqNo(0), CqNo(0), Caps::default());
                let pair = Pair { state: from, ..fresh };
                queues.pairs.insert(qp, Box::new(pair));
                let expected =
                    if to == Err || legal.contains(&(from, to)) { Ok(()) } else { Result::Err(Errno::EINVAL) };
                assert_eq!(queues.modify(qp, to), expected, "{from:?} to {to:?}");
            }
        }
    }
}
