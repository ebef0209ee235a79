//! What the QPs of a PD have in flight: which memory their work requests name that have been posted and whose completions have
//! not been polled.
//!
//! Counting costs nothing where it must not. Posting is exclusive (`&mut Qp`) and polling is exclusive (`&mut Cq`), so each
//! number has one writer, and is written by a plain store; no operation of a work request takes a lock or a
//! read-modify-write instruction.
//!
//! # Which work request a completion is of
//!
//! Of a completion in error only `wr_id`, `status` and `qp_num` mean something (ibv_poll_cq(3)): the opcode, which would
//! say whether it was a send or a receive, does not. So the device is not given the user's `wr_id`, but a token: in its
//! upper half the seat that the queue has at its CQ, in the lower half how many were posted before. The user's is kept in
//! the ring, and put back when the completion is polled. A token names one work request of one queue, whatever became of
//! it, with any provider.
//!
//! # Why memory safety rests on this
//!
//! `ibv_dereg_mr` and `ibv_rereg_mr` withdraw the memory from the device, but not from the provider: `ibv_poll_cq` of mlx5 and
//! hns copies data of up to 64 bytes that was received or read from the completion to the address in the work request, and checks
//! no key (`mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe`, `hns_roce_poll_one`). So the memory that a work request names must
//! not be given back before its completion is gone. That holds, because
//!
//! - only an MR of the QP's PD can be posted (post.rs), so whoever gives back the memory of an MR looks at every queue that can
//!   name it: [`Flights::name`];
//! - to post takes `&Mr`, to re-register `&mut Mr`, to deregister the [`Mr`](crate::Mr) itself. So all posts that name it have
//!   come back, and what they stored can be seen, before anybody looks;
//! - a work request counts from the post until `ibv_poll_cq` has returned its completion, or a later one of the same queue, as
//!   the work requests of a queue complete in order; a removal of the device changes nothing;
//! - a queue counts until its QP is destroyed and then its CQ was seen empty, or can be polled no more (seats.rs). Some providers
//!   remove the completions of a QP that is destroyed, others leave them in the CQ;
//! - a queue whose QP could not be destroyed counts for ever.

use std::sync::{Arc, Mutex};

use crate::data::pd::lock;
use crate::data::track::Track;

/// The work queues that belong to one PD.
#[derive(Default)]
pub(crate) struct Flights(Mutex<Queues>);

#[derive(Default)]
struct Queues {
    /// Those whose work is in flight until it is polled.
    live: Vec<Arc<Track>>,
    /// Those of QPs that could not be destroyed, and are leaked.
    leaked: Vec<Arc<Track>>,
}

impl Flights {
    /// A queue is there.
    pub(crate) fn enlist(&self, track: &Arc<Track>) {
        lock(&self.0).live.push(Arc::clone(track));
    }

    /// A queue is gone, and with it all that it had in flight.
    pub(crate) fn strike(&self, track: &Arc<Track>) {
        lock(&self.0).remove(track);
    }

    /// The QP of a queue could not be destroyed: what the queue has in flight stays so.
    pub(crate) fn leak(&self, track: &Arc<Track>) {
        let mut queues = lock(&self.0);
        queues.remove(track);
        queues.leaked.push(Arc::clone(track));
    }

    /// Whether work in flight names this key.
    pub(crate) fn name(&self, lkey: u32) -> bool {
        let queues = lock(&self.0);
        queues.live.iter().chain(&queues.leaked).any(|track| track.names(lkey))
    }

    /// Whether work in flight names this key that stays so.
    pub(crate) fn leaked_name(&self, lkey: u32) -> bool {
        lock(&self.0).leaked.iter().any(|track| track.names(lkey))
    }
}

impl Queues {
    fn remove(&mut self, track: &Arc<Track>) {
        if let Some(at) = self.live.iter().position(|other| Arc::ptr_eq(other, track)) {
            self.live.swap_remove(at);
        }
    }
}
