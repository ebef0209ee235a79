//! Counting mode: a work queue whose work requests are counted and not stored.
//!
//! The device gets the `wr_id` of the user, with one more bit for a receive. A completion is of the queue with its `qp_num`
//! and that bit: opcodes are not valid after failures. Each work request is signaled, and those of one queue complete in
//! order, so the number of polled completions is the number of work requests that are not in flight any more. Which memory
//! the others name is not known: all of a PD may be pinned by them. What is deregistered waits for those that were posted
//! before, not for later ones. So memory may be pinned longer than in a precise queue, and never shorter.
//!
//! `tests/orders.rs` compiles this file with loom's atomics in the place of `sync`.

use super::sync::{Arc, Ordering};
use super::wr_ring::WrRing;

impl WrRing {
    /// Counts the completion of a counting queue that was polled.
    #[inline(always)]
    pub(crate) fn count_retired(&self) {
        let retired = &self.retired.number;
        // Releases what the poll has written to memory to who finds that nothing is in flight.
        retired.store(retired.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// What a counting queue had in flight at a time.
pub(crate) struct Snapshot {
    wr_ring: Arc<WrRing>,
    /// The number of work requests that were posted until then.
    posted: u64,
}

impl Snapshot {
    /// Of a queue that counts. `None` if nothing is in flight.
    pub(crate) fn of(wr_ring: &Arc<WrRing>) -> Option<Self> {
        let posted = wr_ring.posted.number.load(Ordering::Acquire);
        let snapshot = Snapshot { wr_ring: Arc::clone(wr_ring), posted };
        (wr_ring.is_counting && !snapshot.is_retired()).then_some(snapshot)
    }

    /// Whether it is of this queue.
    pub(crate) fn is_of(&self, wr_ring: &Arc<WrRing>) -> bool {
        Arc::ptr_eq(&self.wr_ring, wr_ring)
    }

    /// Whether all of it is completed and polled.
    pub(crate) fn is_retired(&self) -> bool {
        self.wr_ring.retired.number.load(Ordering::Acquire) >= self.posted
    }
}
