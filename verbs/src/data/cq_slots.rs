//! Which work queues report to a completion queue, and taking their completions to account.
//!
//! Each queue that something was posted to has a seat: the upper half of the tokens that its work requests carry
//! (flight.rs). Its lower 16 bits are an index, its upper ones say how often a seat was taken before, so that
//! completions that a QP left behind are not taken for the next one's. A queue that nothing was posted to has a
//! reservation: a share of the CQ's depth, and the right to a seat.
//!
//! # When a queue is gone
//!
//! A queue whose QP is destroyed may have left completions in the CQ. Until they are gone it keeps its seat, its
//! share of the CQ's depth, and the memory that its work requests name. They are gone when `ibv_poll_cq` has returned
//! 0 after the QP was destroyed, or when the handle of the CQ is dropped, after which nobody polls. A queue of which
//! every completion has been polled has left none.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cmid_proto::{CqRoom, Errno};

use crate::data::in_flight::InFlightIndex;
use crate::data::pd::PdInner;
use crate::data::wr_ring::{Retired, WrRing};
use crate::lock::lock;
use cmid_proto::datapath::Completion;

/// Bits of a seat that are an index.
const INDEX_BITS: u32 = 16;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

/// Who sits where at one CQ.
pub(crate) struct CqSlots {
    plan: Mutex<Plan>,
    /// Counts the changes of the list of queues, so that the poller reads it only after a change.
    version: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    chairs: Vec<Chair>,
    /// Those that have changed since the one who polls has looked, each once: so it costs him what has changed, and not
    /// what there is.
    changed: Vec<usize>,
    /// Indices that were given and are free again. Others without a track are of queues that are about to get one, or
    /// are gone and may have left completions.
    free: Vec<usize>,
    /// How many seats have been given.
    given: u16,
    /// How many queues have a reservation: there is an index for each.
    queues: u32,
    room: CqRoom,
    /// Destroyed queues that may have left completions, and that the poller has not processed.
    gone: Vec<Gone>,
    /// Nobody can poll any more.
    closed: bool,
}

#[derive(Default)]
struct Chair {
    wr_ring: Option<Arc<WrRing>>,
    /// Whether it is among the changed.
    changed: bool,
}

/// The poller's copy; there is one for each CQ.
#[derive(Default)]
pub(crate) struct SlotCache {
    tracks: Vec<Option<Arc<WrRing>>>,
    version: usize,
    /// A queue that is there has completed what was not to be completed.
    doubt: bool,
    /// Queues whose QP was destroyed before the last poll.
    gone: Vec<Gone>,
    /// Queues whose QP was destroyed, perhaps during the last poll.
    going: Vec<Gone>,
}

/// A queue whose QP is destroyed, and that may have left completions in the CQ.
pub(crate) struct Gone {
    pub(crate) seat: u32,
    /// Of its reservation.
    pub(crate) capacity: u32,
    pub(crate) wr_ring: Arc<WrRing>,
    /// Among the queues of its PD.
    pub(crate) place: InFlightIndex,
    pub(crate) pd: Weak<PdInner>,
}

impl CqSlots {
    /// Of a CQ for so many completions.
    pub(crate) fn new(depth: u32) -> Self {
        let plan = Plan { room: CqRoom::new(depth), ..Plan::default() };
        CqSlots { plan: Mutex::new(plan), version: AtomicUsize::new(0) }
    }

    pub(crate) fn room(&self) -> CqRoom {
        lock(&self.plan).room
    }

    /// A share of the depth for so many queues, of so many work requests together, and for each of them the right to
    /// a seat.
    ///
    /// # Errors
    /// `EOVERFLOW` if the CQ has no room for so many completions more, `ENOMEM` if more queues had a reservation than
    /// there are seats. Nothing is reserved then.
    #[inline]
    pub(crate) fn reserve(&self, queues: u32, capacity: u32) -> Result<(), Errno> {
        let mut plan = lock(&self.plan);
        plan.room.check(capacity).map_err(|_| Errno::EOVERFLOW)?;
        if queues > INDEX + 1 - plan.queues {
            return Err(Errno::ENOMEM);
        }
        plan.queues += queues;
        plan.room.reserve(capacity).map_err(|_| Errno::EOVERFLOW)
    }

    /// Gives up the reservations of queues that have no seat.
    #[inline]
    pub(crate) fn cancel(&self, queues: u32, capacity: u32) {
        lock(&self.plan).cancel(queues, capacity);
    }

    /// A seat for a queue that has a reservation; nobody is looked for there before it is filled.
    pub(crate) fn take(&self) -> u32 {
        let mut plan = lock(&self.plan);
        let index = plan.free.pop().unwrap_or_else(|| {
            plan.chairs.push(Chair::default());
            plan.chairs.len() - 1
        });
        plan.given = plan.given.wrapping_add(1);
        u32::from(plan.given) << INDEX_BITS | index as u32
    }

    /// From now on completions of the queue are looked for.
    pub(crate) fn fill(&self, seat: u32, wr_ring: &Arc<WrRing>) {
        let mut plan = lock(&self.plan);
        plan.fill(seat, Some(Arc::clone(wr_ring)));
        // With the lock still held.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The QP of a queue in a seat is destroyed. Once for each seat that was filled.
    pub(crate) fn leave(&self, gone: Gone) {
        let mut plan = lock(&self.plan);
        plan.fill(gone.seat, None);
        let over = plan.closed || gone.wr_ring.is_idle();
        let over = if over {
            plan.release(&gone);
            Some(gone)
        } else {
            plan.gone.push(gone);
            None
        };
        self.version.fetch_add(1, Ordering::Release);
        drop(plan);
        if let Some(gone) = over {
            gone.end();
        }
    }

    /// No completion of it is left, or the CQ is not polled any more.
    fn end(&self, gone: Gone) {
        lock(&self.plan).release(&gone);
        gone.end();
    }
}

impl Gone {
    /// It pins nothing any more.
    fn end(self) {
        if let Some(pd) = self.pd.upgrade() {
            pd.in_flight().remove(self.place);
            pd.parked().released();
        }
    }
}

impl Plan {
    fn cancel(&mut self, queues: u32, capacity: u32) {
        self.queues = self.queues.saturating_sub(queues);
        self.room.release(capacity);
    }

    /// The seat is free, and the reservation is given up.
    fn release(&mut self, gone: &Gone) {
        self.free.push((gone.seat & INDEX) as usize);
        self.cancel(1, gone.capacity);
    }

    fn fill(&mut self, seat: u32, wr_ring: Option<Arc<WrRing>>) {
        let index = (seat & INDEX) as usize;
        let Some(chair) = self.chairs.get_mut(index) else { return };
        chair.wr_ring = wr_ring;
        if !core::mem::replace(&mut chair.changed, true) {
            self.changed.push(index);
        }
    }
}

impl SlotCache {
    /// Whether no queue has come or gone since the last look.
    #[inline(always)]
    pub(crate) fn is_current(&self, cq_slots: &CqSlots) -> bool {
        self.version == cq_slots.version.load(Ordering::Acquire)
    }

    /// Takes the completion with this token to account and returns the user's number; `None` if it belongs to no known
    /// queue or to no work request.
    #[inline(always)]
    pub(crate) fn retire_known(&mut self, token: u64) -> Option<u64> {
        match self.retired(token) {
            Retired::Done(wr_id) => Some(wr_id),
            Retired::Foreign | Retired::Unexpected => None,
        }
    }

    /// Takes the completions after the first `kept` to account, puts the users' numbers into them, and drops those that
    /// are of nobody any more. Returns how many are left, including the first.
    pub(crate) fn retire(&mut self, cq_slots: &CqSlots, completions: &mut [Completion], kept: usize) -> usize {
        if !self.is_current(cq_slots) {
            self.look(cq_slots);
        }
        let mut left = kept;
        for at in kept..completions.len() {
            let Some(&completion) = completions.get(at) else { break };
            let wr_id = self.retire_known(completion.wr_id).or_else(|| self.retire_again(cq_slots, completion.wr_id));
            if let Some(wr_id) = wr_id
                && let Some(place) = completions.get_mut(left)
            {
                *place = Completion { wr_id, ..completion };
                left += 1;
            }
        }
        left
    }

    /// Whether a queue that is there has completed something that is not in flight.
    #[inline(always)]
    pub(crate) fn has_doubt(&self) -> bool {
        self.doubt
    }

    /// The same, and forgets it.
    pub(crate) fn take_doubt(&mut self) -> bool {
        core::mem::take(&mut self.doubt)
    }

    #[inline(always)]
    fn retired(&self, token: u64) -> Retired {
        let index = (token >> 32) as u32 & INDEX;
        let wr_ring = self.tracks.get(index as usize).and_then(Option::as_ref);
        wr_ring.map_or(Retired::Foreign, |wr_ring| wr_ring.retire(token))
    }

    /// The queue may be so new that its seat was not seen, or be gone.
    #[cold]
    fn retire_again(&mut self, cq_slots: &CqSlots, token: u64) -> Option<u64> {
        self.look(cq_slots);
        match self.retired(token) {
            Retired::Done(wr_id) => return Some(wr_id),
            Retired::Foreign => {}
            Retired::Unexpected => self.doubt = true,
        }
        None
    }

    #[cold]
    fn look(&mut self, cq_slots: &CqSlots) {
        let mut plan = lock(&cq_slots.plan);
        let plan = &mut *plan;
        self.tracks.resize(plan.chairs.len(), None);
        for index in plan.changed.drain(..) {
            if let (Some(chair), Some(wr_ring)) = (plan.chairs.get_mut(index), self.tracks.get_mut(index)) {
                wr_ring.clone_from(&chair.wr_ring);
                chair.changed = false;
            }
        }
        self.going.append(&mut plan.gone);
        self.version = cq_slots.version.load(Ordering::Relaxed);
    }

    /// A poll has found the CQ empty: those are over that were gone before it. Says whether there are no others, of
    /// which another poll would tell.
    pub(crate) fn refresh(&mut self, cq_slots: &CqSlots) -> bool {
        if self.none_gone() {
            return true;
        }
        let over = core::mem::replace(&mut self.gone, core::mem::take(&mut self.going));
        over.into_iter().for_each(|gone| cq_slots.end(gone));
        self.gone.is_empty()
    }

    /// Whether no destroyed queue is known that may have left completions.
    #[inline(always)]
    pub(crate) fn none_gone(&self) -> bool {
        self.gone.is_empty() && self.going.is_empty()
    }

    /// Nobody polls any more.
    pub(crate) fn close(&mut self, cq_slots: &CqSlots) {
        let mut over = {
            let mut plan = lock(&cq_slots.plan);
            plan.closed = true;
            core::mem::take(&mut plan.gone)
        };
        over.append(&mut self.gone);
        over.append(&mut self.going);
        over.into_iter().for_each(|gone| cq_slots.end(gone));
    }
}

#[cfg(test)]
#[path = "cq_slots_tests.rs"]
mod tests;
