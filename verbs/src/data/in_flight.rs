//! What the QPs of a PD have in flight: which memory their work requests name that have been posted and whose
//! completions have not been polled.
//!
//! Counting costs nothing where it must not. Posting is exclusive (`&mut Qp`) and polling is exclusive (`&mut Cq`),
//! so each number has one writer, and is written by a plain store; no operation of a work request takes a lock or a
//! read-modify-write instruction, but the first post to a queue: it makes the ring (work_queue.rs), and enlists it
//! here.
//!
//! # Which work request a completion is of
//!
//! Of a completion in error only `wr_id`, `status` and `qp_num` mean something (ibv_poll_cq(3)): the opcode, which
//! would say whether it was a send or a receive, does not. So the device is not given the user's `wr_id`, but a
//! token: in its upper half the id of the queue at its CQ, in the lower half the number of earlier posts. The
//! user's is kept in the ring, and put back when the completion is polled. A token names one work request of one
//! queue, whatever became of it, with any provider.
//!
//! # Why memory safety rests on this
//!
//! `ibv_dereg_mr` and `ibv_rereg_mr` withdraw the memory from the device, but not from the provider: `ibv_poll_cq` of
//! mlx5 and hns copies data of up to 64 bytes that was received or read from the completion to the address in the
//! work request, and checks no key (`mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe`, `hns_roce_poll_one`). So the
//! memory that a work request names must not be given back before its completion is gone. That holds, because
//!
//! - only an MR of the QP's PD can be posted (post.rs), so whoever gives back the memory of an MR looks at every
//!   queue that can name it: [`InFlightSet::name`];
//! - a queue is enlisted before the first work request is handed to its provider; one that is not names nothing;
//! - to post takes `&Mr`, to re-register `&mut Mr`, to deregister the [`Mr`](crate::Mr) itself. So all posts that
//!   name it have come back, and what they stored, and that their queues are enlisted, can be seen before anybody
//!   looks;
//! - a work request counts from the post until `ibv_poll_cq` has returned its completion, or a later one of the same
//!   queue, as the work requests of a queue complete in order; a removal of the device changes nothing;
//! - a queue counts until its QP is destroyed and then all of its completions were polled, its CQ was seen empty, or
//!   can be polled no more (cq_slots.rs). Some providers remove the completions of a QP that is destroyed, others leave
//!   them in the CQ;
//! - a queue whose QP could not be destroyed counts for ever;
//! - a receive of a shared receive queue counts until its own completion is returned, because those of an SRQ come in
//!   any order (srq_slots.rs). Which QP has taken it is not known, so no other end of a QP ends it: it counts until the
//!   SRQ is destroyed, and each CQ that its QPs reported to was seen empty after their destruction, or can be polled no
//!   more.

use std::sync::{Arc, Mutex};

use slab::Slab;

use crate::data::srq_slots::SrqSlots;
use crate::data::wr_ring::{Cursor, WrRing};
use crate::lock::lock;

/// The work queues that belong to one PD.
pub(crate) struct InFlightSet {
    queues: Mutex<Queues>,
    /// Stands for the ring of a queue that has none: it is full, and empty.
    nothing: Arc<WrRing>,
}

#[derive(Default)]
struct Queues {
    /// The queues with work in flight.
    live: Slab<InFlight>,
    /// Those of QPs that could not be destroyed, and are leaked.
    leaked: Vec<InFlight>,
}

/// A queue that may have work in flight.
enum InFlight {
    Queue(Arc<WrRing>),
    Srq(Arc<SrqSlots>),
}

impl InFlight {
    fn names(&self, lkey: u32) -> bool {
        match self {
            InFlight::Queue(wr_ring) => wr_ring.names(lkey),
            InFlight::Srq(slots) => slots.names(lkey),
        }
    }
}

/// Where a queue is among those of its PD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlightIndex(usize);

impl InFlightSet {
    pub(crate) fn new() -> Self {
        InFlightSet { queues: Mutex::default(), nothing: WrRing::nothing() }
    }

    /// The cursor of a queue that has no ring: it has no room.
    pub(crate) fn without_ring(&self) -> Cursor {
        Cursor::new(&self.nothing)
    }

    /// Something is to be posted to a queue for the first time.
    pub(crate) fn enlist(&self, wr_ring: &Arc<WrRing>) -> InFlightIndex {
        InFlightIndex(lock(&self.queues).live.insert(InFlight::Queue(Arc::clone(wr_ring))))
    }

    /// The same for an SRQ that is created.
    pub(crate) fn enlist_srq(&self, slots: &Arc<SrqSlots>) -> InFlightIndex {
        InFlightIndex(lock(&self.queues).live.insert(InFlight::Srq(Arc::clone(slots))))
    }

    /// A queue is gone, and with it all that it had in flight. Once for each that was enlisted.
    pub(crate) fn remove(&self, place: InFlightIndex) {
        let queue = lock(&self.queues).live.try_remove(place.0);
        // With its ring, if nobody else has it; not under the lock.
        drop(queue);
    }

    /// The QP of a queue could not be destroyed: what the queue has in flight stays so. In the place of
    /// [`InFlightSet::remove`].
    pub(crate) fn leak(&self, place: InFlightIndex) {
        let mut queues = lock(&self.queues);
        let queue = queues.live.try_remove(place.0);
        queues.leaked.extend(queue);
    }

    /// Whether work in flight names this key.
    pub(crate) fn name(&self, lkey: u32) -> bool {
        let queues = lock(&self.queues);
        let live = queues.live.iter().map(|(_, queue)| queue);
        live.chain(&queues.leaked).any(|queue| queue.names(lkey))
    }

    /// Whether work in flight names this key that stays so.
    pub(crate) fn leaked_name(&self, lkey: u32) -> bool {
        lock(&self.queues).leaked.iter().any(|queue| queue.names(lkey))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with one work request in flight that names this key.
    fn queue(in_flight: &InFlightSet, lkey: u32) -> (InFlightIndex, Cursor) {
        let wr_ring = Arc::new(WrRing::new(1, 4, 1));
        let place = in_flight.enlist(&wr_ring);
        let mut cursor = Cursor::new(&wr_ring);
        cursor.file(1, &[lkey]).expect("room");
        cursor.advance(1);
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
        // Its place is used again, and the others keep theirs.
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
        assert_eq!(in_flight.without_ring().file(1, &[1]), None);
        assert!(named(&in_flight).is_empty());
    }
}
