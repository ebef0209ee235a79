//! Data transfer: a packet to the peer, and its answer. Without an answer the request fails.

use cmid_proto::datapath::{AsyncEventKind, AsyncSource, Completion, WcOpcode, WcStatus};

use crate::data::cq::Ready;
use crate::data::packet::{Extra, Packet, Transfer};
use crate::data::pending::{Order, Pending, is_read};
use crate::data::qp::PairState;
use crate::data::queues::{Pair, Sent};
use crate::data::receive::{Put, Receive, Received, RecvOf};
use crate::data::responder::Handled;
use crate::data::space::{KeyedRange, Scatter, Stretch};
use crate::fabric::config::Flavour;
use crate::fabric::rules::Kind;
use crate::fabric::world::World;
use crate::index::{CqNo, PdNo, QpNo};

impl World {
    pub(crate) fn transfer(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Packet(packet) => self.packet_arrives(packet),
            Transfer::Answer { to, sequence, result } => self.answer_arrives(to, sequence, result),
            Transfer::Datagram(datagram) => self.datagram_arrives(&datagram),
            Transfer::GiveUp { qp, sequence } => self.give_up(qp, sequence),
            Transfer::NotReady { qp, sequence, status } => self.peer_is_not_ready(qp, sequence, status),
            Transfer::Repeat { to, from, sequence } => self.repeat(to, from, sequence),
            Transfer::Resend { qp } => self.resend(qp),
            Transfer::Copied { qp, sequence } => self.copy_due(qp, sequence),
        }
    }

    fn packet_arrives(&mut self, mut packet: Box<Packet>) {
        let from = packet.from;
        let arrives = packet.to.filter(|to| self.passes(Some(Kind::Packet), from.host, to.host));
        let Some(to) = arrives.filter(|to| self.queues.pairs.get(to).is_some_and(|pair| takes(pair, from))) else {
            self.counters.after_end += u64::from(self.is_iwarp(from.host));
            arrives.into_iter().for_each(|to| self.last_wqe_reached(to));
            return self.lose(packet);
        };
        if self.config.reads_late {
            self.read_sources(&mut packet);
        }
        self.log(from.host, to.host, false, || packet.text());
        if let Some(pair) = self.queues.pairs.get_mut(&to) {
            let waiting = pair.inbound.front().filter(|first| first.waits).map(|first| first.sequence);
            pair.inbound.push_back(packet);
            match waiting {
                Some(first) => self.out_of_sequence(from, first),
                None => self.run_inbound(to),
            }
        }
    }

    /// Executes the arrived packets of a QP, up to the first one that must wait.
    pub(crate) fn run_inbound(&mut self, qp: QpNo) {
        loop {
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
            if !matches!(pair.state, PairState::Rtr | PairState::Rts) {
                return;
            }
            if pair.copying.is_some() || pair.inbound.front().is_none_or(|packet| packet.waits) {
                return;
            }
            let Some(packet) = pair.inbound.pop_front() else { return };
            let is_iwarp = self.is_iwarp(qp.host);
            let result = match self.carry_out(qp, &packet.operation) {
                // The end of the connection tells the peer, and flushes its request (`siw_proc_terminate`).
                Handled::NotReady | Handled::Answer(Err(_)) if is_iwarp => Err(WcStatus::WR_FLUSH_ERR),
                Handled::Answer(result) => result,
                Handled::NotReady => return self.not_ready(qp, packet),
                Handled::Later(mr) => return self.copy_later(qp, mr, packet),
            };
            let failed = result.is_err();
            self.answer(qp, packet.from, packet.sequence, result);
            if failed && is_iwarp {
                self.siw_refuse(qp, &packet.operation);
            } else if failed {
                self.qp_to_error(qp);
            }
        }
    }

    pub(crate) fn answer_arrives(&mut self, qp: QpNo, sequence: u64, result: Result<Vec<u8>, WcStatus>) {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        // The work request may be flushed already.
        let Some(at) = pair.sends.iter().position(|pending| pending.sequence == sequence) else {
            // iWARP has completed it, and now the peer ends the connection.
            if result.is_err() {
                self.qp_to_error(qp);
            }
            return;
        };
        // Answers of the peer come in order. A command of the local device may be executed before them (`rxe_completer`).
        if let Some(pending) = pair.sends.get_mut(at).filter(|pending| at > 0 && pending.is_command()) {
            pending.executed = Some(WcStatus::SUCCESS);
            return;
        }
        let Some(pending) = pair.sends.remove(at) else { return };
        let (pd, is_last) = (pair.pd, pair.sends.is_empty());
        let outcome = result.and_then(|bytes| {
            if pending.local.targets().is_empty() {
                return Ok(Put::default());
            }
            self.put(pd, pending.local.targets(), &bytes).ok_or(WcStatus::LOC_PROT_ERR)
        });
        match outcome {
            Ok(Put { byte_len, scatter }) => {
                self.finish_send(qp, &pending, Sent { status: WcStatus::SUCCESS, byte_len, scatter });
                if !is_last {
                    self.finish_executed(qp);
                    self.run_sends(qp);
                }
            }
            Err(status) => {
                if status == WcStatus::LOC_PROT_ERR && self.is_iwarp(qp.host) {
                    self.siw_event(qp, AsyncEventKind::QP_ACCESS_ERR); // `siw_proc_rresp`
                }
                self.finish_send(qp, &pending, Sent::failed(status));
                self.qp_to_error(qp);
            }
        }
    }

    /// Completes what is executed at the head of the send queue.
    pub(super) fn finish_executed(&mut self, qp: QpNo) {
        loop {
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
            let Some(status) = pair.sends.front().and_then(|pending| pending.executed) else { return };
            let Some(pending) = pair.sends.pop_front() else { return };
            self.finish_send(qp, &pending, Sent { status, byte_len: 0, scatter: Vec::new() });
            if status != WcStatus::SUCCESS {
                self.qp_to_error(qp);
            }
        }
    }

    /// Writes bytes to the targets of a receive or a read, which have room for them; `None` if the hardware rejects it.
    /// With a copy at the poll the hardware checks nothing.
    pub(crate) fn put(&mut self, pd: PdNo, ranges: &[KeyedRange], bytes: &[u8]) -> Option<Put> {
        let (byte_len, mut rest, mut scatter) = (count(bytes.len()), bytes, Vec::new());
        for range in ranges {
            let (part, after) = rest.split_at(rest.len().min(range.len));
            rest = after;
            let range = KeyedRange { len: part.len(), ..*range };
            if self.config.copy_at_poll {
                scatter.push(Scatter { addr: range.addr, bytes: part.to_vec() });
            } else {
                self.memory.for_local_write(pd, range)?.copy_from_slice(part);
            }
        }
        Some(Put { byte_len, scatter })
    }

    /// Moves a QP to its error state: flushes all posted work requests, and leaves arrived packets unanswered.
    pub(crate) fn qp_to_error(&mut self, qp: QpNo) {
        let copied = self.copied(qp);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let is_new = pair.state != PairState::Err;
        // The kernel of siw looks at its queue once.
        let flushes = pair.order == Order::OfPosts || is_new && pair.state != PairState::Closing;
        let drains = flushes && pair.drains();
        pair.state = PairState::Err;
        if is_new {
            self.iw_qp_gone(qp);
        }
        self.last_wqe_reached(qp);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let inbound = std::mem::take(&mut pair.inbound);
        pair.unanswered.clear();
        pair.repeats = false;
        let peer = pair.peer;
        self.queues.recall(qp, peer);
        if flushes {
            self.flush_sends(qp);
        }
        if drains {
            self.siw_event(qp, AsyncEventKind::SQ_DRAINED);
        }
        self.flush_receives(qp);
        for packet in copied.map(|(packet, _)| packet).into_iter().chain(inbound) {
            self.lose(packet);
        }
    }

    /// Reports that a QP in its error state takes no more receives of its SRQ, which stay for other QPs: rxe of Linux 6.12 does
    /// so each time that its receiver runs, also for a packet and for a flushed send (`flush_recv_queue`).
    pub(super) fn last_wqe_reached(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get(&qp) else { return };
        let failed = pair.order == Order::OfPosts && pair.state == PairState::Err;
        if failed && pair.srq.is_some() && self.config.flavour == Flavour::Linux6_12 {
            self.raise(pair.pd, AsyncEventKind::QP_LAST_WQE_REACHED, AsyncSource::Qp(qp.num));
        }
    }

    /// `ibv_destroy_qp`: no more completions. Those in the CQs are removed, or pin their regions until they are
    /// polled ([`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp)). If a window is bound
    /// through the QP, it only enters its error state until the window is gone: rxe would wait for 50 s, and corrupt
    /// its reference count (`__rxe_cleanup`).
    pub(crate) fn destroy_qp(&mut self, qp: QpNo) {
        self.end_qp(qp, !self.config.completions_outlive_qp);
    }

    /// Removes a QP. After a removal of the device the kernel calls this, and the library removes no completions
    /// until the program destroys the QP.
    pub(crate) fn end_qp(&mut self, qp: QpNo, remove_completions: bool) {
        if self.queues.has_windows(qp) {
            self.qp_to_error(qp);
            if let Some(pair) = self.queues.pairs.get_mut(&qp) {
                pair.doomed = true;
            }
            return;
        }
        let copied = self.copied(qp);
        let pair = self.queues.pairs.remove(&qp);
        self.queues.leave(qp, pair.as_deref(), remove_completions);
        self.sweep = true;
        let Some(pair) = pair else { return };
        self.iw_qp_gone(qp);
        self.queues.recall(qp, pair.peer);
        if let Some(srq) = pair.srq {
            self.end_unused_srq(srq);
        }
        self.memory.discount_user(pair.pd);
        self.release_pd(pair.pd);
        for packet in copied.map(|(packet, _)| packet).into_iter().chain(pair.inbound) {
            self.lose(packet);
        }
    }

    /// Takes a QP off its id, or ends its id. Without a handle the QP is destroyed. Otherwise it goes to the error state,
    /// as with `cmid-verbs`, and is destroyed with its handle.
    pub(crate) fn detach_qp(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        pair.attached = false;
        // The windows of its requests may go.
        self.sweep = true;
        if pair.held {
            self.qp_to_error(qp);
        } else {
            self.destroy_qp(qp);
        }
    }

    /// Copies bytes at a poll, or of a write. Counts a copy to an address that is no longer mapped.
    pub(super) fn copy(&mut self, addr: u64, bytes: &[u8]) {
        match self.memory.space.bytes_mut(Stretch { addr, len: bytes.len() }) {
            Some(memory) => memory.copy_from_slice(bytes),
            None => self.counters.copied_to_freed += u64::from(!bytes.is_empty()),
        }
    }

    /// Ends a request of a send queue. Where the posts order completions, one that is not signaled has a completion only if it
    /// fails.
    pub(crate) fn finish_send(&mut self, qp: QpNo, pending: &Pending, sent: Sent) {
        let is_quiet = sent.status == WcStatus::SUCCESS && !pending.signaled;
        if is_quiet && self.queues.pairs.get(&qp).is_none_or(|pair| pair.order == Order::OfPosts) {
            return;
        }
        self.wake(qp.host);
        if sent.status != WcStatus::SUCCESS {
            self.note(qp.host, || format!("QP {}: request {} ends with {}", qp.num, pending.wr_id, sent.status));
        }
        self.add_completion(qp, |pair| {
            let (pins, &Pending { sequence, wr_id, opcode, .. }) = (pending.local.pins(), pending);
            let (Sent { status, byte_len, scatter }, receive_of, pd) = (sent, None, pair.pd);
            let solicited = pending.solicited && pair.order == Order::OfTransport;
            let is_withdrawn = pending.is_withdrawn || is_quiet;
            let completion = Completion { wr_id, status, opcode, byte_len, qp_num: qp.num, ..Completion::default() };
            let ready = Ready { qp, completion, is_withdrawn, sequence, receive_of, pd, pins, solicited, scatter };
            (pair.send_cq, ready)
        });
    }

    /// Ends a receive.
    pub(crate) fn finish_receive(&mut self, qp: QpNo, receive: &Receive, received: Received) {
        self.wake(qp.host);
        self.add_completion(qp, |pair| {
            let (pins, &Receive { sequence, is_withdrawn, .. }) = (receive.pins(), receive);
            let Received { completion, solicited, scatter } = received;
            let (receive_of, pd) = (Some(pair.srq.map_or(RecvOf::Qp(qp), RecvOf::Srq)), pair.pd);
            let completion = Completion { qp_num: qp.num, ..completion };
            let ready = Ready { qp, completion, is_withdrawn, sequence, receive_of, pd, pins, solicited, scatter };
            (pair.recv_cq, ready)
        });
    }

    /// Adds a completion to a CQ of a QP. If the CQ is gone or full, the completion is lost, and its region stays pinned until
    /// the QP is gone too.
    fn add_completion(&mut self, qp: QpNo, ready: impl FnOnce(&Pair) -> (CqNo, Ready)) {
        let Some(pair) = self.queues.pairs.get(&qp) else { return };
        let (pd, (cq, ready)) = (pair.pd, ready(pair));
        if !self.queues.cqs.get_mut(&cq).is_none_or(|cq| cq.complete(ready)) {
            self.counters.overruns += 1;
            self.raise(pd, AsyncEventKind::CQ_ERR, AsyncSource::Cq(cq.number()));
        }
    }

    /// Reports an event of an object of a domain.
    pub(super) fn raise(&mut self, pd: PdNo, kind: AsyncEventKind, source: AsyncSource) {
        if let Some(device) = self.domains.device_of(pd) {
            self.raise_event(device, kind, source);
        }
    }

    /// Flushes the send queue of a QP in its error state, also what the doorbell was refused for.
    pub(crate) fn flush_sends(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let (order, mut sends) = (pair.order, std::mem::take(&mut pair.sends));
        for pending in &sends {
            self.finish_send(qp, pending, Sent::failed(WcStatus::WR_FLUSH_ERR));
        }
        let current = sends.iter_mut().rfind(|pending| pending.action.is_none());
        if let Some(read) = current.filter(|current| order == Order::OfTransport && is_read(current.opcode)) {
            read.is_withdrawn = true;
            self.finish_send(qp, read, Sent::failed(WcStatus::WR_FLUSH_ERR));
        }
    }

    /// The same for its receive queue. Each completion is a solicited one on Linux 6.1 (`do_complete` of rxe), and none on 6.12
    /// (`flush_recv_wqe`).
    pub(crate) fn flush_receives(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let is_solicited = self.config.flavour == Flavour::Linux6_1 && pair.order == Order::OfPosts;
        for receive in pair.receives.drain() {
            let extra = Extra { solicited: is_solicited, ..Extra::default() };
            let flushed = receive.ended(Err(WcStatus::WR_FLUSH_ERR), WcOpcode::RECV, extra);
            self.finish_receive(qp, &receive, flushed);
        }
    }
}

/// Whether a QP accepts packets of another one. Before it knows its peer it keeps all packets, which simulates the
/// sender's retries.
fn takes(pair: &Pair, from: QpNo) -> bool {
    let from_peer = match pair.state {
        PairState::Init => true,
        PairState::Rtr | PairState::Rts => pair.peer == Some(from),
        PairState::Suspended | PairState::Closing | PairState::Err => false,
    };
    from_peer && !pair.gap
}

pub(super) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
