//! Packets on their way, and those without an answer: the sender repeats them until they arrive, or gives up. So it does
//! with messages that find no receive: the receiver answers with a time, after which they are repeated (RNR NAK).

use std::collections::VecDeque;
use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::datapath::WcStatus;

use crate::data::packet::{Operation, Packet, Transfer};
use crate::data::qp::PairState;
use crate::fabric::config::Flavour;
use crate::fabric::rules::Kind;
use crate::fabric::world::World;
use crate::index::{HostNo, QpNo};
use crate::kernel::due::Due;
use crate::kernel::gid::ip_of;

/// The `retry_count` with which soft-RoCE never gives up (`rxe_completer`). Hardware counts it as any other.
const WITHOUT_LIMIT: u8 = 7;

/// When a QP without an ACK timeout repeats a lost packet. The real one does so when its peer misses the packet.
const WITHOUT_TIMEOUT: Duration = Duration::from_millis(500);

impl World {
    /// Sends a packet or a datagram. Rules may lose or delay it.
    pub(crate) fn launch(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Packet(packet) => self.launch_packet(packet),
            Transfer::Datagram(datagram) => {
                let (from, target) = (datagram.from.host, ip_of(datagram.route.dgid));
                let (due, copy) =
                    self.arrivals(Kind::Datagram, datagram.bytes.len(), from, |world| world.rdma_host_of(target));
                if let Some(later) = copy {
                    self.timers.arm(later, Due::Data(Transfer::Datagram(datagram.clone())));
                }
                self.timers.arm(due, Due::Data(Transfer::Datagram(datagram)));
            }
            // The others are not sent.
            Transfer::Answer { .. }
            | Transfer::GiveUp { .. }
            | Transfer::NotReady { .. }
            | Transfer::Repeat { .. }
            | Transfer::Resend { .. }
            | Transfer::Copied { .. } => {}
        }
    }

    fn launch_packet(&mut self, packet: Box<Packet>) {
        let (qp, to) = (packet.from, packet.to.map(|to| to.host));
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        if pair.repeats {
            // It is out of sequence at the peer, and repeated with the lost one.
            return pair.unanswered.push_back(packet);
        }
        if self.is_lost(Kind::Packet, qp.host, |_| to) {
            self.counters.packets_lost += 1;
            self.log(qp.host, to.unwrap_or(qp.host), true, || packet.text());
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
            pair.repeats = true;
            let again = self.now.after(pair.timeout.time().unwrap_or(WITHOUT_TIMEOUT));
            // Without a retry it is given up when it would be repeated.
            self.lose(packet);
            self.timers.arm(again, Due::Data(Transfer::Resend { qp }));
            return;
        }
        let (due, _) = self.arrivals(Kind::Packet, packet.operation.payload(), qp.host, |_| to);
        self.arm_packet(packet, due);
    }

    /// Sends the answer of a QP to a packet of its peer, after those before it.
    pub(crate) fn answer(&mut self, qp: QpNo, to: QpNo, sequence: u64, result: Result<Vec<u8>, WcStatus>) {
        let mut due = self.answer_arrival(qp.host, to.host, result.as_ref().map_or(0, Vec::len));
        if let Some(pair) = self.queues.pairs.get_mut(&qp) {
            due = due.max(pair.last_answer);
            pair.last_answer = due;
        }
        self.timers.arm(due, Due::Data(Transfer::Answer { to, sequence, result }));
    }

    fn arm_packet(&mut self, packet: Box<Packet>, due: Time) {
        let Some(pair) = self.queues.pairs.get_mut(&packet.from) else { return };
        let due = due.max(pair.last_arrival);
        pair.last_arrival = due;
        self.timers.arm(due, Due::Data(Transfer::Packet(packet)));
    }

    /// Repeats the packets of a QP after its timeout.
    pub(crate) fn resend(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        pair.repeats = false;
        for packet in self.take_unanswered(qp) {
            self.launch_packet(packet);
        }
    }

    /// Returns the unanswered packets of a QP in order, with the bytes that their memory has now: the device reads it again
    /// for each retry.
    fn take_unanswered(&mut self, qp: QpNo) -> VecDeque<Box<Packet>> {
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return VecDeque::new() };
        let mut packets = std::mem::take(&mut pair.unanswered);
        packets.make_contiguous().sort_by_key(|packet| packet.sequence);
        packets.iter_mut().for_each(|packet| self.read_sources(packet));
        packets
    }

    /// Gives a packet the bytes that their memory has now, unless the device has a copy, or the request is over or the memory
    /// gone.
    pub(crate) fn read_sources(&self, packet: &mut Packet) {
        let Some(pair) = self.queues.pairs.get(&packet.from) else { return };
        if packet.sources.is_empty() || !pair.sends.iter().any(|pending| pending.sequence == packet.sequence) {
            return;
        }
        let Some(now) = self.memory.gather(pair.pd, &packet.sources) else { return };
        if let Operation::Send(bytes, _) | Operation::Write(_, bytes, _) = &mut packet.operation {
            *bytes = now;
        }
    }

    /// Keeps a packet that has not arrived for its next retry, and limits the time of all retries.
    pub(crate) fn lose(&mut self, mut packet: Box<Packet>) {
        let (qp, sequence) = (packet.from, packet.sequence);
        let is_iwarp = self.is_iwarp(qp.host);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        packet.waits = false;
        pair.unanswered.push_back(packet);
        let (retries, timeout) = (pair.retry_count, pair.timeout.time());
        // TCP retransmits for iWARP, and gives up.
        if let Some(timeout) = timeout.filter(|_| retries < WITHOUT_LIMIT || is_iwarp) {
            let due = self.now.after(timeout.saturating_mul(u32::from(retries) + 1));
            self.timers.arm(due, Due::Data(Transfer::GiveUp { qp, sequence }));
        }
    }

    /// Fails a packet that has not arrived in any retry.
    pub(crate) fn give_up(&mut self, qp: QpNo, sequence: u64) {
        let Some(pair) = self.queues.pairs.get(&qp) else { return };
        if pair.unanswered.iter().any(|packet| packet.sequence == sequence) {
            self.answer_arrives(qp, sequence, Err(WcStatus::RETRY_EXC_ERR));
        }
    }

    /// Repeats the unanswered packets that pass now: the link of a host is up again, or `None` for any. Before that all retries
    /// fail, so this is the first one that matters.
    pub(crate) fn retry(&mut self, link: Option<HostNo>) {
        let passes = |packet: &Packet| {
            let Some([from, to]) = packet.to.map(|to| [packet.from.host, to.host]) else { return false };
            link.is_none_or(|link| [from, to].contains(&link)) && self.is_open(from, to)
        };
        for qp in self.queues.pairs.keys_of(|_, pair| pair.unanswered.iter().any(|packet| passes(packet))) {
            let due = self.now.after(self.config.latency);
            for packet in self.take_unanswered(qp) {
                self.arm_packet(packet, due);
            }
        }
    }
}

/// The number of RNR retries that means no limit.
const WITHOUT_RNR_LIMIT: u8 = 7;

impl World {
    /// Answers that there is no receive for a packet. It stays the first one until the sender repeats it, after the receiver's
    /// `min_rnr_timer`, or has used up its retries (`rxe_completer`). In the error state the sender repeats nothing.
    ///
    /// The ACK timeout goes on meanwhile, and counts as a retry when it passes: on Linux 6.12 it begins anew with each
    /// repetition (`reset_retry_timer`), on 6.1 only once it has passed.
    pub(super) fn not_ready(&mut self, qp: QpNo, mut packet: Box<Packet>) {
        let (now, latency, from, is_old) =
            (self.now, self.config.latency, packet.from, self.config.flavour == Flavour::Linux6_1);
        let sender = self.queues.pairs.get(&from).filter(|sender| sender.state == PairState::Rts);
        let limits = sender.map(|sender| (sender.rnr_retry_count, sender.retry_count, sender.timeout.time()));
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let Some((rnr_retries, retries, timeout)) = limits else {
            pair.gap = true;
            return;
        };
        let again = now.after(pair.min_rnr_timer.time().saturating_add(latency.saturating_mul(2)));
        let running = packet.timer.filter(|&due| is_old && due > now);
        packet.timer = running.or_else(|| timeout.map(|timeout| now.after(timeout)));
        let passes = packet.timer.filter(|&due| due < again && retries < WITHOUT_LIMIT);
        let ends = match passes {
            _ if rnr_retries < WITHOUT_RNR_LIMIT && packet.rnr_naks >= rnr_retries => {
                Some((now.after(latency), WcStatus::RNR_RETRY_EXC_ERR))
            }
            Some(due) if packet.timeouts >= retries => Some((due, WcStatus::RETRY_EXC_ERR)),
            Some(_) | None => None,
        };
        let sequence = packet.sequence;
        packet.rnr_naks = packet.rnr_naks.saturating_add(1);
        packet.timeouts = packet.timeouts.saturating_add(passes.is_some().into());
        packet.waits = true;
        pair.inbound.push_front(packet);
        let (due, next) = match ends {
            Some((due, status)) => (due, Transfer::NotReady { qp: from, sequence, status }),
            None => (again, Transfer::Repeat { to: qp, from, sequence }),
        };
        self.timers.arm(due, Due::Data(next));
    }

    /// A packet has come behind one that waits to be repeated. The answer to that counts as a retry of the first one, once:
    /// without any it fails.
    pub(super) fn out_of_sequence(&mut self, from: QpNo, first: u64) {
        if self.queues.pairs.get(&from).is_some_and(|sender| sender.retry_count == 0) {
            let failed = Transfer::NotReady { qp: from, sequence: first, status: WcStatus::RETRY_EXC_ERR };
            self.timers.arm(self.now.after(self.config.latency), Due::Data(failed));
        }
    }

    /// The first packet of a QP arrives again.
    pub(super) fn repeat(&mut self, to: QpNo, from: QpNo, sequence: u64) {
        let first = self.queues.pairs.get_mut(&to).and_then(|pair| pair.inbound.front_mut());
        if let Some(packet) = first.filter(|packet| (packet.from, packet.sequence) == (from, sequence)) {
            packet.waits = false;
            self.run_inbound(to);
        }
    }

    /// Fails a packet that has found no receive and is repeated no more.
    pub(super) fn peer_is_not_ready(&mut self, qp: QpNo, sequence: u64, status: WcStatus) {
        let peer = self.queues.pairs.get(&qp).and_then(|pair| pair.peer);
        let first = peer.and_then(|peer| self.queues.pairs.get(&peer)?.inbound.front());
        if first.is_some_and(|packet| packet.from == qp && packet.sequence == sequence) {
            self.answer_arrives(qp, sequence, Err(status));
        }
    }
}
