//! Writes of peers that a device copies later than it checks their keys ([`Config::copies_late`](crate::Config)).

use crate::data::packet::{Operation, Packet, Transfer};
use crate::fabric::world::World;
use crate::index::{MrHandle, QpNo};
use crate::kernel::due::Due;

/// A write whose key is checked.
#[derive(Debug)]
pub(crate) struct Copying {
    packet: Packet,
    /// The region that the key gave access to.
    mr: MrHandle,
}

impl World {
    /// Begins to copy a write. The packets behind it wait.
    pub(super) fn copy_later(&mut self, qp: QpNo, mr: MrHandle, packet: Packet) {
        let copied = Transfer::Copied { qp, sequence: packet.sequence };
        self.timers.arm(self.now.after(self.config.latency.saturating_mul(4)), Due::Data(copied));
        if let Some(pair) = self.queues.pairs.get_mut(&qp) {
            pair.copying = Some(Copying { packet, mr });
        }
    }

    /// Copies the write that a QP has begun with, and returns it.
    pub(super) fn copied(&mut self, qp: QpNo) -> Option<Packet> {
        let Copying { packet, .. } = self.queues.pairs.get_mut(&qp)?.copying.take()?;
        if let Operation::Write(range, bytes, _) = &packet.operation {
            self.copy(range.addr, bytes);
        }
        Some(packet)
    }

    /// The copy of this write is due, unless it is done.
    pub(super) fn copy_due(&mut self, qp: QpNo, sequence: u64) {
        let copying = self.queues.pairs.get(&qp).and_then(|pair| pair.copying.as_ref());
        if copying.is_some_and(|copying| copying.packet.sequence == sequence) {
            self.end_copy(qp);
        }
    }

    /// Copies the write that a QP has begun with, answers it, and goes on.
    fn end_copy(&mut self, qp: QpNo) {
        let Some(Packet { from, sequence, operation, .. }) = self.copied(qp) else { return };
        if let Operation::Write(_, bytes, extra) = operation {
            self.written(qp, &bytes, extra);
        }
        self.answer(qp, from, sequence, Ok(Vec::new()));
        self.run_inbound(qp);
    }

    /// Copies what is copied to a region: a deregistration waits for that (`rxe_cleanup`).
    pub(super) fn end_copies_to(&mut self, mr: MrHandle) {
        let of_mr = |copying: &Copying| copying.mr == mr;
        for qp in self.queues.pairs.keys_of(|_, pair| pair.copying.as_ref().is_some_and(of_mr)) {
            self.end_copy(qp);
        }
    }
}
