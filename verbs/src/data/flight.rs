//! What a QP has in flight: which memory its work requests name that have been posted and whose completions have not been
//! polled.
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
//! # Why memory safety does not rest on this
//!
//! `ibv_dereg_mr` and `ibv_rereg_mr` withdraw the memory from the device whatever is in flight; a work request that still
//! names it fails. That the two are refused meanwhile is for the program's sake. Whether the answer is right rests on
//! Rust's borrowing: to post takes `&Mr`, to re-register `&mut Mr`, to deregister the [`Mr`](crate::Mr) itself; so all
//! posts that name it have come back, and what they stored can be seen, before anybody asks.

use std::sync::{Arc, Mutex};

use crate::data::pd::lock;
use crate::data::track::Track;

/// What one QP has in flight.
pub(crate) struct Flight {
    pub(crate) send: Arc<Track>,
    pub(crate) recv: Arc<Track>,
}

/// What the QPs that belong to one PD have in flight.
#[derive(Default)]
pub(crate) struct Flights(Mutex<Vec<Arc<Flight>>>);

impl Flight {
    fn names(&self, lkey: u32) -> bool {
        self.send.names(lkey) || self.recv.names(lkey)
    }
}

impl Flights {
    /// A QP is there.
    pub(crate) fn enlist(&self, flight: &Arc<Flight>) {
        lock(&self.0).push(Arc::clone(flight));
    }

    /// The QP is gone, and with it all that it had in flight.
    pub(crate) fn strike(&self, flight: &Arc<Flight>) {
        let mut all = lock(&self.0);
        if let Some(at) = all.iter().position(|other| Arc::ptr_eq(other, flight)) {
            all.swap_remove(at);
        }
    }

    /// Whether a QP that is there has work in flight that names this key.
    pub(crate) fn name(&self, lkey: u32) -> bool {
        lock(&self.0).iter().any(|flight| flight.names(lkey))
    }
}
