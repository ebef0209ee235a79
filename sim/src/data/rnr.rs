//! Messages that find no receive: the receiver answers with a time, after which the sender repeats them (RNR NAK).

use cmid_proto::datapath::WcStatus;

use crate::data::packet::{Packet, Transfer};
use crate::fabric::world::World;
use crate::index::QpNo;
use crate::kernel::due::Due;

/// The number of RNR retries that means no limit.
const WITHOUT_LIMIT: u8 = 7;

impl World {
    /// Answers that there is no receive for a packet. It stays the first one until the sender repeats it, after the receiver's
    /// `min_rnr_timer`, or has used up its retries (`rxe_completer`). For iWARP, TCP keeps it until there is a receive.
    pub(super) fn not_ready(&mut self, qp: QpNo, mut packet: Box<Packet>) {
        let (is_iwarp, latency, from) = (self.is_iwarp(qp.host), self.config.latency, packet.from);
        let retries = self.queues.pairs.get(&from).map_or(WITHOUT_LIMIT, |pair| pair.rnr_retry_count);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        let (sequence, is_last) = (packet.sequence, retries < WITHOUT_LIMIT && packet.rnr_naks >= retries);
        let again = self.now.after(pair.min_rnr_timer.time().saturating_add(latency.saturating_mul(2)));
        packet.rnr_naks = packet.rnr_naks.saturating_add(1);
        packet.waits = !is_iwarp;
        pair.inbound.push_front(packet);
        if is_iwarp {
            return;
        }
        if is_last {
            self.timers.arm(self.now.after(latency), Due::Data(Transfer::NotReady { qp: from, sequence }));
        } else {
            self.timers.arm(again, Due::Data(Transfer::Repeat { to: qp, from, sequence }));
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

    /// Fails a packet that has found no receive in any of its retries.
    pub(super) fn peer_is_not_ready(&mut self, qp: QpNo, sequence: u64) {
        let peer = self.queues.pairs.get(&qp).and_then(|pair| pair.peer);
        let first = peer.and_then(|peer| self.queues.pairs.get(&peer)?.inbound.front());
        if first.is_some_and(|packet| packet.from == qp && packet.sequence == sequence) {
            self.answer_arrives(qp, sequence, Err(WcStatus::RNR_RETRY_EXC_ERR));
        }
    }
}
