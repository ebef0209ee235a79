//! Counting mode: a work queue counts its work requests and stores none.
//!
//! The device gets the `wr_id` of the user; for a receive one more bit is set. `qp_num` and that bit identify the queue
//! of a completion, because opcodes are not valid after failures. Each work request is signaled, and those of one queue
//! complete in order. So the number of polled completions is the number of work requests that are no longer in flight.
//! The memory that the others name is not recorded: they may pin any memory of the PD. A deregistration waits for the
//! work requests that were posted before it, not for later ones. So memory is pinned as long as in a precise queue, or
//! longer.
//!
//! `tests/orders.rs` compiles this file with loom's atomics in place of `sync`.

use super::sync::{Arc, Ordering};
use super::wr_ring::WrRing;

impl WrRing {
    /// Counts a polled completion of a counting queue.
    #[inline(always)]
    pub(crate) fn count_retired(&self) {
        let retired = &self.retired.number;
        // Release: a thread that finds nothing in flight sees the memory that the poll has written.
        retired.store(retired.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The work requests that a counting queue had in flight at one time.
pub(crate) struct Snapshot {
    wr_ring: Arc<WrRing>,
    /// The number of work requests that were posted before.
    posted: u64,
}

impl Snapshot {
    /// Creates the snapshot of a counting queue. `None` if nothing is in flight.
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
