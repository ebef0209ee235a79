//! Data transfer: a packet to the peer, and its answer. Without an answer the request fails.

use cmid_proto::datapath::{Access, AsyncEventKind, AsyncSource, Completion, WcOpcode, WcStatus};

use crate::data::cq::Ready;
use crate::data::packet::{Extra, Operation, Packet, Transfer};
use crate::data::pending::{Order, Pending, is_read};
use crate::data::qp::PairState;
use crate::data::queues::{Pair, Sent};
use crate::data::receive::{Put, Receive, Received, RecvOf};
use crate::data::space::{KeyedRange, Scatter, Stretch};
use crate::fabric::config::Flavour;
use crate::fabric::rules::Kind;
use crate::fabric::world::World;
use crate::index::{CqNo, MrHandle, PdNo, QpNo};

/// The result of a packet at its receiver.
enum Handled {
    Answer(Result<Vec<u8>, WcStatus>),
    /// No receive is posted: the sender retries until one is.
    NotReady,
    /// A write or an atomic operation to this region is copied later.
    Later(MrHandle),
}

impl World {
    pub(crate) fn transfer(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Packet(packet) => self.packet_arrives(packet),
            Transfer::Answer { to, sequence, result } => self.answer_arrives(to, sequence, result),
            Transfer::Datagram(datagram) => self.datagram_arrives(&datagram),
            Transfer::GiveUp { qp, sequence } => self.give_up(qp, sequence),
            Transfer::NotReady { qp, sequence } => self.peer_is_not_ready(qp, sequence),
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
            return self.lose(packet);
        };
        if self.config.reads_late {
            self.read_sources(&mut packet);
        }
        self.log(from.host, to.host, false, || packet.text());
        if let Some(pair) = self.queues.pairs.get_mut(&to) {
            pair.inbound.push_back(packet);
            self.run_inbound(to);
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
            if failed && is_iwarp && matches!(packet.operation, Operation::Read(_)) {
                self.siw_suspend(qp);
            } else if failed {
                self.qp_to_error(qp);
            }
        }
    }

    fn carry_out(&mut self, qp: QpNo, operation: &Operation) -> Handled {
        let Some(pair) = self.queues.pairs.get(&qp) else {
            return Handled::Answer(Err(WcStatus::RETRY_EXC_ERR));
        };
        let pd = pair.pd;
        let refused = Handled::Answer(Err(WcStatus::REM_ACCESS_ERR));
        match operation {
            Operation::Read(_) | Operation::CompareSwap(..) | Operation::FetchAdd(..) if !pair.answers_reads => {
                Handled::Answer(Err(WcStatus::REM_INV_REQ_ERR))
            }
            Operation::Send(bytes, extra) => match self.take_receive(qp) {
                None => Handled::NotReady,
                Some(receive) => self.receive_message(qp, pd, &receive, bytes, *extra),
            },
            Operation::Write(_, _, Some(_)) if self.next_receive(qp).is_none() => Handled::NotReady,
            &Operation::Write(range, _, extra) => {
                if self.memory.for_remote(qp, pd, range, Access::REMOTE_WRITE).is_none() {
                    // As rxe: the receive is taken before the key is checked, and ends with the error.
                    if let Some(extra) = extra {
                        self.receive_immediate(qp, Err(WcStatus::REM_ACCESS_ERR), extra);
                    }
                    return refused;
                }
                self.permitted(qp, range, operation)
            }
            &Operation::Read(range) => match self.memory.for_remote(qp, pd, range, Access::REMOTE_READ) {
                Some(memory) => Handled::Answer(Ok(memory.to_vec())),
                None => refused,
            },
            &(Operation::CompareSwap(range, ..) | Operation::FetchAdd(range, _)) => {
                let memory = self.memory.for_remote(qp, pd, range, Access::REMOTE_ATOMIC);
                if memory.is_some_and(|memory| memory.len() == 8) {
                    self.permitted(qp, range, operation)
                } else {
                    refused
                }
            }
        }
    }

    /// Carries out a write or an atomic operation whose key is checked, or begins to.
    fn permitted(&mut self, qp: QpNo, range: KeyedRange, operation: &Operation) -> Handled {
        match self.memory.named_by(range.key).filter(|_| self.config.copies_late) {
            Some(mr) => Handled::Later(mr),
            None => {
                let answer = self.execute(operation);
                self.written(qp, operation);
                Handled::Answer(Ok(answer))
            }
        }
    }

    /// Copies the bytes of a write, or exchanges those of an atomic operation, in the byte order of this machine, as in rxe.
    /// Returns the answer.
    pub(super) fn execute(&mut self, operation: &Operation) -> Vec<u8> {
        let (range, change): (_, &dyn Fn(u64) -> u64) = match operation {
            Operation::Write(range, bytes, _) => {
                self.copy(range.addr, bytes);
                return Vec::new();
            }
            Operation::CompareSwap(range, compare, swap) => (range, &|old| if old == *compare { *swap } else { old }),
            Operation::FetchAdd(range, add) => (range, &|old| old.wrapping_add(*add)),
            Operation::Send(..) | Operation::Read(_) => return Vec::new(),
        };
        let old = self.memory.space.bytes(range.stretch()).and_then(|bytes| bytes.try_into().ok());
        let old = u64::from_ne_bytes(old.unwrap_or_default());
        self.copy(range.addr, &change(old).to_ne_bytes());
        old.to_ne_bytes().to_vec()
    }

    /// Executes a send, which consumes a receive.
    fn receive_message(&mut self, qp: QpNo, pd: PdNo, receive: &Receive, bytes: &[u8], extra: Extra) -> Handled {
        if self.is_iwarp(qp.host) {
            return Handled::Answer(self.siw_receive(qp, pd, receive, bytes, extra.invalidate));
        }
        let (mut outcome, answer) = if bytes.len() > receive.len() {
            // As rxe: `copy_data` returns EINVAL for a message that does not fit, and `send_data_in` takes that for a
            // malformed receive. Hardware reports LOC_LEN_ERR and REM_INV_REQ_ERR.
            (Err(WcStatus::LOC_QP_OP_ERR), Err(WcStatus::REM_OP_ERR))
        } else {
            match self.put(pd, &receive.ranges, bytes) {
                Some(put) => (Ok(put), Ok(Vec::new())),
                None => (Err(WcStatus::LOC_PROT_ERR), Err(WcStatus::REM_OP_ERR)),
            }
        };
        if outcome.is_ok() {
            if let Some(rkey) = extra.invalidate {
                // As rxe: the message is acknowledged, also with the key of a region (`rxe_invalidate_mr`). Only the receive
                // fails, and its QP.
                if self.invalidate_mw(qp.host, rkey).is_none() {
                    outcome = Err(WcStatus::REM_INV_REQ_ERR);
                }
            }
        }
        let failed = outcome.is_err();
        self.finish_receive(qp, receive, receive.ended(outcome, WcOpcode::RECV, extra));
        if failed {
            self.qp_to_error(qp);
        }
        Handled::Answer(answer)
    }

    /// A write or an atomic operation has been copied.
    pub(super) fn written(&mut self, qp: QpNo, operation: &Operation) {
        if let Operation::Write(_, bytes, Some(extra)) = operation {
            let put = Put { byte_len: count(bytes.len()), scatter: Vec::new() };
            self.receive_immediate(qp, Ok(put), *extra);
        }
    }

    /// Executes a write with immediate data. It consumes a receive, and does not use the memory of the receive.
    fn receive_immediate(&mut self, qp: QpNo, outcome: Result<Put, WcStatus>, extra: Extra) {
        if let Some(receive) = self.take_receive(qp) {
            self.finish_receive(qp, &receive, receive.ended(outcome, WcOpcode::RECV_RDMA_WITH_IMM, extra));
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
            pending.is_executed = true;
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
                    self.finish_commands(qp);
                    self.run_sends(qp);
                }
            }
            Err(status) => {
                self.finish_send(qp, &pending, Sent::failed(status));
                self.qp_to_error(qp);
            }
        }
    }

    /// Completes the executed commands at the head of the send queue.
    fn finish_commands(&mut self, qp: QpNo) {
        loop {
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
            if !pair.sends.front().is_some_and(|pending| pending.is_executed) {
                return;
            }
            let Some(pending) = pair.sends.pop_front() else { return };
            self.finish_send(qp, &pending, Sent { status: WcStatus::SUCCESS, byte_len: 0, scatter: Vec::new() });
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
        pair.state = PairState::Err;
        let (has_srq, pd) = (pair.srq.is_some(), pair.pd);
        if is_new {
            self.iw_qp_gone(qp);
        }
        if is_new && has_srq {
            // `flush_recv_queue` of rxe; the receives stay for other QPs.
            self.raise(pd, AsyncEventKind::QP_LAST_WQE_REACHED, AsyncSource::Qp(qp.num));
        }
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let inbound = std::mem::take(&mut pair.inbound);
        pair.unanswered.clear();
        pair.repeats = false;
        let peer = pair.peer;
        self.queues.recall(qp, peer);
        if flushes {
            self.flush_sends(qp);
        }
        self.flush_receives(qp);
        for packet in copied.map(|(packet, _)| packet).into_iter().chain(inbound) {
            self.lose(packet);
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
            let (Sent { status, byte_len, scatter }, receive_of, solicited, pd) = (sent, None, false, pair.pd);
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
    fn raise(&mut self, pd: PdNo, kind: AsyncEventKind, source: AsyncSource) {
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

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
