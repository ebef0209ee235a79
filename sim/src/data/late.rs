//! Writes and atomic operations of peers that a device copies later than it checks their keys
//! ([`Config::copies_late`](crate::Config)).

use crate::data::packet::{Packet, Transfer};
use crate::fabric::world::World;
use crate::index::{MrHandle, PdNo, QpNo};
use crate::kernel::due::Due;

/// An operation whose key is checked.
#[derive(Debug)]
pub(crate) struct Copying {
    packet: Box<Packet>,
    /// The region that the key gave access to.
    mr: MrHandle,
}

impl World {
    /// Begins to copy an operation. The packets behind it wait.
    pub(super) fn copy_later(&mut self, qp: QpNo, mr: MrHandle, packet: Box<Packet>) {
        let copied = Transfer::Copied { qp, sequence: packet.sequence };
        self.timers.arm(self.now.after(self.config.latency.saturating_mul(4)), Due::Data(copied));
        if let Some(pair) = self.queues.pairs.get_mut(&qp) {
            pair.copying = Some(Copying { packet, mr });
        }
    }

    /// Copies the operation that a QP has begun with, and returns it with its answer.
    pub(super) fn copied(&mut self, qp: QpNo) -> Option<(Box<Packet>, Vec<u8>)> {
        let Copying { packet, .. } = self.queues.pairs.get_mut(&qp)?.copying.take()?;
        let answer = self.execute(&packet.operation);
        Some((packet, answer))
    }

    /// The copy of this operation is due, unless it is done.
    pub(super) fn copy_due(&mut self, qp: QpNo, sequence: u64) {
        let copying = self.queues.pairs.get(&qp).and_then(|pair| pair.copying.as_ref());
        if copying.is_some_and(|copying| copying.packet.sequence == sequence) {
            self.end_copy(qp);
        }
    }

    /// Copies the operation that a QP has begun with, answers it, and goes on.
    fn end_copy(&mut self, qp: QpNo) {
        let Some((packet, answer)) = self.copied(qp) else { return };
        self.written(qp, &packet.operation);
        self.answer(qp, packet.from, packet.sequence, Ok(answer));
        self.run_inbound(qp);
    }

    /// Copies what is copied to a region: a deregistration waits for that (`rxe_cleanup`), on soft-iWARP it does not.
    pub(super) fn end_copies_to(&mut self, mr: MrHandle) {
        let of_mr = |copying: &Copying| copying.mr == mr;
        for qp in self.queues.pairs.keys_of(|_, pair| pair.copying.as_ref().is_some_and(of_mr)) {
            if !self.is_iwarp(qp.host) {
                self.end_copy(qp);
            }
        }
    }

    /// Sets the rights of peers on the QPs of a domain, as `cmid-verbs` does on soft-iWARP after the deregistration of memory that
    /// peers could write to: the change waits for what is copied (`siw_verbs_modify_qp`).
    pub(super) fn end_writes(&mut self, pd: PdNo) {
        for qp in self.queues.pairs.keys_of(|_, pair| pair.pd == pd && pair.copying.is_some()) {
            if self.is_iwarp(qp.host) {
                self.end_copy(qp);
            }
        }
    }
}
