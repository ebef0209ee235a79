//! Packets without an answer: the sender repeats them until they arrive, or gives up.

use cmid_proto::datapath::WcStatus;

use crate::data::packet::{Packet, Transfer};
use crate::fabric::world::World;
use crate::index::{HostNo, QpNo};
use crate::kernel::due::Due;

/// The `retry_count` with which soft-RoCE never gives up (`rxe_completer`). Hardware counts it as any other.
const WITHOUT_LIMIT: u8 = 7;

impl World {
    /// Keeps a packet that has not arrived for its next retry, and limits the time of all retries.
    pub(crate) fn lose(&mut self, packet: Packet) {
        let (qp, sequence) = (packet.from, packet.sequence);
        let is_iwarp = self.is_iwarp(qp.host);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        pair.unanswered.push(Packet { waits: false, ..packet });
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

    /// Repeats the unanswered packets to and from a host: its link is up again. Before that all retries fail, so this
    /// is the first one that matters.
    pub(crate) fn retry(&mut self, host: HostNo) {
        let concerns = |packet: &Packet| packet.from.host == host || packet.to.is_some_and(|to| to.host == host);
        for qp in self.queues.pairs.keys_of(|_, pair| pair.unanswered.iter().any(concerns)) {
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { continue };
            let mut packets = std::mem::take(&mut pair.unanswered);
            packets.sort_by_key(|packet| packet.sequence);
            for packet in packets {
                self.timers.arm(self.now.after(self.config.latency), Due::Data(Transfer::Packet(packet)));
            }
        }
    }
}
