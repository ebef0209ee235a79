//! The work requests in flight on the QPs of a PD, and the memory that they name. A work request is in flight from the
//! post until its completion is polled.
//!
//! Posting is exclusive (`&mut Qp`), and so is polling (`&mut Cq`). Each counter therefore has one writer, which uses
//! plain stores. Posting and polling take no lock and no read-modify-write instruction. The exception is the first
//! post to a queue: it creates the ring (work_queue.rs) and adds it here.
//!
//! # The work request of a completion
//!
//! After a failure only `wr_id`, `status` and `qp_num` of a completion are valid (ibv_poll_cq(3)). The opcode is not,
//! so it cannot distinguish a send from a receive. Therefore the device gets a token instead of the user's `wr_id`. Its
//! upper half is the id of the queue at its CQ, its lower half the number of earlier posts. The ring stores the user's
//! `wr_id`; polling restores it. A token names one work request of one queue, with every provider and every status.
//!
//! # Memory safety
//!
//! `ibv_dereg_mr` and `ibv_rereg_mr` withdraw memory from the device, but not from the provider: `ibv_poll_cq` of mlx5
//! and hns copies up to 64 bytes of received or read data from the completion to the address in the work request, and
//! checks no key (`mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe`, `hns_roce_poll_one`). The memory that a work
//! request names must therefore not be freed or returned before its completion is polled. These rules ensure it:
//!
//! - Only an MR of the QP's PD can be posted (post.rs). Before the memory of an MR is returned, every queue that can
//!   name it is searched ([`InFlightSet::name`]).
//! - A block has no key there. Its request owns it, and with it the registrations of its memory, for as long as the
//!   request counts (`Lent`, blocks.rs).
//! - A queue is added before its first work request is passed to the provider.
//! - A post borrows `&Mr`, a re-registration `&mut Mr`, and a deregistration consumes the [`Mr`](crate::Mr). So every
//!   post that names the MR has returned before the search, and its stores are visible to the search.
//! - A work request counts from before the post until `ibv_poll_cq` has returned its completion, or a later one of the
//!   same queue: the work requests of a queue complete in order. The exception is the send queue on iWARP: a completion
//!   ends its own request, and of those without a completion before it only what the transport orders (retire.rs). A
//!   completion of a number that was not posted ends nothing. A removal of the device does not change this.
//! - No request of a send queue reaches the provider before the QP is in RTS (`Qp::open_send`). If the provider returns
//!   an error, it may have queued all that it was given: soft-RoCE's library does before the kernel refuses the
//!   doorbell. So that stays in flight, with tokens that are not used again, and ends as a request without a completion.
//!   If it is executed, its completion is dropped, because the application was told that it is not posted (retire.rs). If
//!   another thread has polled the completion before, the application is told that it is posted.
//! - A queue counts until its QP is destroyed, and after that until all its completions were polled, its CQ was found
//!   empty, or its CQ cannot be polled any more (cq_slots.rs). Some providers remove the completions of a destroyed QP,
//!   others leave them in the CQ.
//! - A queue counts for ever if its QP could not be destroyed.
//! - A receive of a shared receive queue counts until its own completion is returned, because the receives of an SRQ
//!   complete in any order (srq_slots.rs). The QP that takes it is not known, so the destruction of a QP does not end
//!   it. It counts until the SRQ is destroyed, and each CQ of its QPs was found empty after their destruction or cannot
//!   be polled any more.

use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;

use crate::accounting::srq_slots::SrqSlots;
use crate::accounting::wr_ring::{Cursor, WrRing};

/// A PD, as the accounting of its queues needs it.
pub(crate) trait PdWork: Send + Sync {
    /// What its queues have in flight.
    fn in_flight(&self) -> &InFlightSet;

    /// Retries deregistrations. Called after a queue was removed, which may have blocked them.
    fn released(&self);
}

/// A PD of tests, of which there is none.
#[cfg(test)]
pub(crate) enum NoPd {}

#[cfg(test)]
impl PdWork for NoPd {
    fn in_flight(&self) -> &InFlightSet {
        match *self {}
    }

    fn released(&self) {
        match *self {}
    }
}

/// The work queues that belong to one PD.
pub(crate) struct InFlightSet {
    queues: Mutex<Queues>,
    /// The ring of queues that have none. Its capacity is 0.
    nothing: Arc<WrRing>,
}

#[derive(Default)]
struct Queues {
    /// The queues with work in flight.
    live: Slab<InFlight>,
    /// The queues of QPs that could not be destroyed and are leaked.
    leaked: Vec<InFlight>,
}

/// A queue that may have work in flight.
enum InFlight {
    Queue(Arc<WrRing>),
    Srq(Arc<SrqSlots>),
}

impl Queues {
    fn all(&self) -> impl Iterator<Item = &InFlight> {
        self.live.iter().map(|(_, queue)| queue).chain(&self.leaked)
    }
}

impl InFlight {
    fn names(&self, lkey: u32) -> bool {
        match self {
            InFlight::Queue(wr_ring) => wr_ring.names(lkey),
            InFlight::Srq(slots) => slots.names(lkey),
        }
    }
}

/// The index of a queue in the set of its PD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlightIndex(usize);

impl InFlightSet {
    pub(crate) fn new() -> Self {
        InFlightSet { queues: Mutex::default(), nothing: WrRing::nothing(0) }
    }

    /// Returns the cursor of a queue without a ring. It has no room.
    pub(crate) fn without_ring(&self) -> Cursor {
        Cursor::new(&self.nothing)
    }

    /// Adds a queue, before its first post.
    pub(crate) fn enlist(&self, wr_ring: &Arc<WrRing>) -> InFlightIndex {
        InFlightIndex(self.queues.lock().live.insert(InFlight::Queue(Arc::clone(wr_ring))))
    }

    /// Adds a new SRQ.
    pub(crate) fn enlist_srq(&self, slots: &Arc<SrqSlots>) -> InFlightIndex {
        InFlightIndex(self.queues.lock().live.insert(InFlight::Srq(Arc::clone(slots))))
    }

    /// Removes a queue with its work in flight. Called once for each queue that was added.
    pub(crate) fn remove(&self, place: InFlightIndex) {
        let queue = self.queues.lock().live.try_remove(place.0);
        // With its ring, if nobody else has it; not under the lock.
        drop(queue);
    }

    /// Keeps the work in flight of a queue for ever, because its QP could not be destroyed. Called instead of
    /// [`InFlightSet::remove`].
    pub(crate) fn leak(&self, place: InFlightIndex) {
        let mut queues = self.queues.lock();
        let queue = queues.live.try_remove(place.0);
        queues.leaked.extend(queue);
    }

    /// Whether work in flight names this key.
    pub(crate) fn name(&self, lkey: u32) -> bool {
        self.queues.lock().all().any(|queue| queue.names(lkey))
    }

    /// Whether work that is in flight for ever names this key.
    pub(crate) fn leaked_name(&self, lkey: u32) -> bool {
        self.queues.lock().leaked.iter().any(|queue| queue.names(lkey))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::kind::Kind;

    /// A queue with one work request in flight that names this key.
    fn queue(in_flight: &InFlightSet, lkey: u32) -> (InFlightIndex, Cursor) {
        let wr_ring = Arc::new(WrRing::new(1, 4, 1));
        let place = in_flight.enlist(&wr_ring);
        let mut cursor = Cursor::new(&wr_ring);
        cursor.file(1, &[lkey], Kind::RECEIVE).expect("room");
        (place, cursor)
    }

    fn named(in_flight: &InFlightSet) -> Vec<u32> {
        (1..=6).filter(|&lkey| in_flight.name(lkey)).collect()
    }

    #[test]
    fn each_queue_is_struck_by_its_own_place() {
        let in_flight = InFlightSet::new();
        let mut queues: Vec<_> = (1..=5).map(|lkey| queue(&in_flight, lkey)).collect();
        in_flight.remove(queues[1].0);
        in_flight.remove(queues[3].0);
        assert_eq!(named(&in_flight), [1, 3, 5]);
        // Its index is used again. The other queues keep theirs.
        queues[1] = queue(&in_flight, 6);
        assert_eq!(named(&in_flight), [1, 3, 5, 6]);
        in_flight.remove(queues[0].0);
        in_flight.remove(queues[1].0);
        assert_eq!(named(&in_flight), [3, 5]);
    }

    #[test]
    fn what_is_leaked_stays_in_flight() {
        let in_flight = InFlightSet::new();
        let [one, other] = [1, 2].map(|lkey| queue(&in_flight, lkey));
        in_flight.leak(one.0);
        in_flight.remove(other.0);
        assert_eq!((named(&in_flight), in_flight.leaked_name(1), in_flight.leaked_name(2)), (vec![1], true, false));
    }

    #[test]
    fn a_queue_without_a_ring_takes_nothing() {
        let in_flight = InFlightSet::new();
        assert_eq!(in_flight.without_ring().file(1, &[1], Kind::RECEIVE), None);
        assert_eq!(in_flight.without_ring().batch().file(1, &[1], Kind::RECEIVE), None);
        assert!(named(&in_flight).is_empty());
    }
}
