//! The work queues that report to a completion queue, and the accounting of their completions.
//!
//! A queue gets an id with its first post. The id is the upper half of the tokens of its work requests (in_flight.rs).
//! Its lower 16 bits are an index. Its upper bits count the ids that were assigned before: completions that a destroyed
//! QP has left are not assigned to the next queue with that index. Before its first post a queue has a reservation: a
//! share of the CQ's depth, and the right to an id.
//!
//! # Destroyed queues
//!
//! A queue of a destroyed QP may have left completions in the CQ. Until none is left it keeps its id, its share of the
//! CQ's depth, and the memory that its work requests name. None is left when `ibv_poll_cq` has returned 0 after the
//! destruction, or when the handle of the CQ is dropped, because then no thread polls. A queue has left none if all its
//! completions were polled before.
//!
//! # Shared receive queues
//!
//! The tokens of the receives of an SRQ name the SRQ, not a queue of the CQ (srq_slots.rs). A CQ stores the SRQs that
//! its QPs use, and reserves a share of its depth for each. A destroyed QP may have left completions. It keeps the SRQ
//! at the CQ, and the SRQ's work in flight, as long as above. Its remaining completions are not dropped: they return the
//! receives to the application.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use cmid_proto::{CqRoom, Errno};

use crate::data::in_flight::InFlightIndex;
use crate::data::pd::PdInner;
use crate::data::rings::{Known, Rings};
use crate::data::srq_slots::{SRQ_INDEX, SrqRetired, SrqSlots, srq_of};
use crate::data::srq_table::SrqTable;
use crate::data::wr_ring::{Retired, WrRing};
use crate::lock::lock;
use cmid_proto::datapath::Completion;

/// The bits of the count in a queue's id, without the upper one: a token is below 2^63 (raw.rs).
const ASSIGNED: u16 = u16::MAX >> 1;
/// Bits of a queue's id that are an index.
const INDEX_BITS: u32 = 16;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(SRQ_INDEX == INDEX, "the last index is that of no queue");

/// The work queues that report to one CQ, by index.
pub(crate) struct CqSlots {
    state: Mutex<State>,
    /// Counts the changes of the list of queues, so that the poller reads it only after a change.
    version: AtomicUsize,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// The entries that have changed since the last poll, each once. A refresh is O(changes).
    changed: Vec<usize>,
    /// Free indices that were used before. Other indices without a ring belong to queues that will get one, or to
    /// destroyed queues that may have left completions.
    free: Vec<usize>,
    /// The number of ids that were assigned, modulo 2^15.
    assigned: u16,
    /// The number of queues with a reservation. There is an index for each.
    queues: u32,
    room: CqRoom,
    /// Destroyed queues that may have left completions, and that the poller has not processed.
    gone: Vec<Gone>,
    srqs: Vec<SrqEntry>,
    /// Whether they have changed since the poller read them.
    srqs_changed: bool,
    /// Whether the handle is dropped. No thread polls any more.
    closed: bool,
}

/// An SRQ that QPs of the CQ use.
struct SrqEntry {
    slots: Arc<SrqSlots>,
    /// The number of QPs, including destroyed ones that may have left completions.
    qps: u32,
}

#[derive(Default)]
struct Entry {
    wr_ring: Option<Arc<WrRing>>,
    /// Whether it is among the changed.
    changed: bool,
}

/// The poller's copy; there is one for each CQ.
#[derive(Default)]
pub(crate) struct SlotCache {
    rings: Rings,
    srqs: Vec<Arc<SrqSlots>>,
    /// An older one if there is a doubt: one comparison for both.
    version: usize,
    /// Whether an existing queue has completed a work request that was not in flight.
    doubt: bool,
    /// Queues whose QP was destroyed before the last poll.
    gone: Vec<Gone>,
    /// Queues whose QP was destroyed, perhaps during the last poll.
    going: Vec<Gone>,
}

/// A queue whose QP is destroyed, and that may have left completions in the CQ.
enum Gone {
    Queue(GoneQueue),
    /// It used this SRQ.
    Srq(Arc<SrqTable>),
}

/// A work queue of a QP that is destroyed.
pub(crate) struct GoneQueue {
    pub(crate) queue_id: u32,
    /// Of its reservation.
    pub(crate) capacity: u32,
    pub(crate) wr_ring: Arc<WrRing>,
    /// Among the queues of its PD.
    pub(crate) place: InFlightIndex,
    pub(crate) pd: Weak<PdInner>,
}

impl CqSlots {
    /// Creates the slots of a CQ with this depth.
    pub(crate) fn new(depth: u32) -> Self {
        let state = State { room: CqRoom::new(depth), ..State::default() };
        CqSlots { state: Mutex::new(state), version: AtomicUsize::new(0) }
    }

    pub(crate) fn room(&self) -> CqRoom {
        lock(&self.state).room
    }

    /// Reserves a share of the depth for this number of queues, with `capacity` work requests together, and an id for
    /// each.
    ///
    /// # Errors
    /// `EOVERFLOW` if the CQ has no room for so many completions more, `ENOMEM` if more queues had a reservation than
    /// there are ids. Nothing is reserved then.
    #[inline]
    pub(crate) fn reserve(&self, queues: u32, capacity: u32) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.room.check(capacity).map_err(|_| Errno::EOVERFLOW)?;
        if queues > INDEX - state.queues {
            return Err(Errno::ENOMEM);
        }
        state.queues += queues;
        state.room.reserve(capacity).map_err(|_| Errno::EOVERFLOW)
    }

    /// Gives up the reservations of queues that have no id.
    #[inline]
    pub(crate) fn cancel(&self, queues: u32, capacity: u32) {
        lock(&self.state).cancel(queues, capacity);
    }

    /// Assigns an id to a queue that has a reservation. Completions with it are of no queue before
    /// [`CqSlots::set_ring`].
    pub(crate) fn assign(&self) -> u32 {
        let mut state = lock(&self.state);
        let index = state.free.pop().unwrap_or_else(|| {
            state.entries.push(Entry::default());
            state.entries.len() - 1
        });
        state.assigned = state.assigned.wrapping_add(1) & ASSIGNED;
        u32::from(state.assigned) << INDEX_BITS | index as u32
    }

    /// Sets the ring of a queue. Its completions are accounted from now on.
    pub(crate) fn set_ring(&self, queue_id: u32, wr_ring: &Arc<WrRing>) {
        let mut state = lock(&self.state);
        state.set_ring(queue_id, Some(Arc::clone(wr_ring)));
        // With the lock still held.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that the QP of a queue is destroyed. Called once for each id with a ring.
    pub(crate) fn leave(&self, gone: GoneQueue) {
        let mut state = lock(&self.state);
        state.set_ring(gone.queue_id, None);
        let is_idle = gone.wr_ring.is_idle();
        self.add_gone(state, Gone::Queue(gone), is_idle);
    }

    /// Adds an SRQ that a QP will use.
    ///
    /// # Errors
    /// `EOVERFLOW` if the CQ has no room for the completions of its receives.
    pub(crate) fn attach_srq(&self, table: &SrqTable) -> Result<(), Errno> {
        let (mut state, slots) = (lock(&self.state), table.slots());
        if let Some(entry) = state.srqs.iter_mut().find(|entry| Arc::ptr_eq(&entry.slots, slots)) {
            entry.qps += 1;
            return Ok(());
        }
        state.room.reserve(slots.capacity()).map_err(|_| Errno::EOVERFLOW)?;
        state.srqs.push(SrqEntry { slots: Arc::clone(slots), qps: 1 });
        state.srqs_changed = true;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Records that a QP with an SRQ is destroyed. Called once for each [`attach_srq`](CqSlots::attach_srq).
    pub(crate) fn leave_srq(&self, table: Arc<SrqTable>) {
        let is_idle = table.slots().unpolled() == 0;
        self.add_gone(lock(&self.state), Gone::Srq(table), is_idle);
    }

    fn add_gone(&self, mut state: MutexGuard<'_, State>, gone: Gone, is_idle: bool) {
        let over = if state.closed || is_idle {
            state.release(&gone);
            Some(gone)
        } else {
            state.gone.push(gone);
            None
        };
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        if let Some(gone) = over {
            gone.end();
        }
    }

    /// Ends a destroyed queue: none of its completions is left, or the CQ is not polled any more.
    fn end(&self, gone: Gone) {
        lock(&self.state).release(&gone);
        gone.end();
    }
}

impl Gone {
    /// Ends the pins of its work in flight.
    fn end(self) {
        match self {
            Gone::Queue(GoneQueue { place, pd, .. }) => {
                if let Some(pd) = pd.upgrade() {
                    pd.in_flight().remove(place);
                    pd.parked().released();
                }
            }
            // The last one ends what the SRQ pins, if that is destroyed.
            Gone::Srq(table) => drop(table),
        }
    }
}

impl State {
    fn cancel(&mut self, queues: u32, capacity: u32) {
        self.queues = self.queues.saturating_sub(queues);
        self.room.release(capacity);
    }

    /// Frees the id and the reservation.
    fn release(&mut self, gone: &Gone) {
        match gone {
            Gone::Queue(gone) => {
                self.free.push((gone.queue_id & INDEX) as usize);
                self.cancel(1, gone.capacity);
            }
            Gone::Srq(table) => self.release_srq(table.slots()),
        }
    }

    fn release_srq(&mut self, slots: &Arc<SrqSlots>) {
        let Some(at) = self.srqs.iter().position(|entry| Arc::ptr_eq(&entry.slots, slots)) else { return };
        let Some(entry) = self.srqs.get_mut(at) else { return };
        entry.qps = entry.qps.saturating_sub(1);
        if entry.qps == 0 {
            self.srqs.swap_remove(at);
            self.room.release(slots.capacity());
            self.srqs_changed = true;
        }
    }

    fn set_ring(&mut self, queue_id: u32, wr_ring: Option<Arc<WrRing>>) {
        let index = (queue_id & INDEX) as usize;
        let Some(entry) = self.entries.get_mut(index) else { return };
        entry.wr_ring = wr_ring;
        if !core::mem::replace(&mut entry.changed, true) {
            self.changed.push(index);
        }
    }
}

impl SlotCache {
    /// Whether the set of queues is unchanged since the last look, and there is no doubt.
    #[inline(always)]
    pub(crate) fn is_current(&self, cq_slots: &CqSlots) -> bool {
        self.version == cq_slots.version.load(Ordering::Acquire)
    }

    /// Returns the known queues.
    #[inline(always)]
    pub(crate) fn known(&self) -> Known<'_> {
        self.rings.known()
    }

    /// Retires the completions after the first `kept`, restores the users' numbers, and drops those of destroyed queues.
    /// Returns the number of completions that are left, including the first `kept`.
    pub(crate) fn retire(&mut self, cq_slots: &CqSlots, completions: &mut [Completion], kept: usize) -> usize {
        if !self.is_current(cq_slots) {
            self.look(cq_slots);
        }
        let mut left = kept;
        for at in kept..completions.len() {
            let Some(&completion) = completions.get(at) else { break };
            let wr_id = match srq_of(completion.wr_id) {
                Some(srq_id) => self.retire_srq(cq_slots, srq_id, completion.wr_id),
                None => self.retire_any(cq_slots, completion.wr_id),
            };
            if let Some(wr_id) = wr_id {
                if let Some(place) = completions.get_mut(left) {
                    *place = Completion { wr_id, ..completion };
                    left += 1;
                }
            }
        }
        left
    }

    /// Whether an existing queue has completed a work request that was not in flight.
    pub(crate) fn has_doubt(&self) -> bool {
        self.doubt
    }

    /// The same, and clears the flag.
    pub(crate) fn take_doubt(&mut self) -> bool {
        core::mem::take(&mut self.doubt)
    }

    /// Retires a completion of a work request. Those before it may not have been signaled.
    fn retire_any(&mut self, cq_slots: &CqSlots, token: u64) -> Option<u64> {
        match self.known().ring(token).retire(token) {
            Retired::Done(wr_id) => Some(wr_id),
            Retired::Foreign | Retired::Unexpected => self.retire_again(cq_slots, token),
        }
    }

    /// The same after a look: the queue may be new, or destroyed.
    #[cold]
    fn retire_again(&mut self, cq_slots: &CqSlots, token: u64) -> Option<u64> {
        self.look(cq_slots);
        match self.known().ring(token).retire(token) {
            Retired::Done(wr_id) => return Some(wr_id),
            Retired::Foreign => {}
            Retired::Unexpected => self.set_doubt(),
        }
        None
    }

    /// The same for a receive of an SRQ. All SRQs of the CQ are known: one is attached before its QP is created.
    fn retire_srq(&mut self, cq_slots: &CqSlots, srq_id: u16, token: u64) -> Option<u64> {
        if !self.is_current(cq_slots) {
            self.look(cq_slots);
        }
        let slots = self.srqs.iter().find(|slots| slots.srq_id() == srq_id)?;
        match slots.retire(token) {
            SrqRetired::Done(wr_id) => Some(wr_id),
            SrqRetired::Unexpected => {
                self.set_doubt();
                None
            }
        }
    }

    fn set_doubt(&mut self) {
        if !core::mem::replace(&mut self.doubt, true) {
            self.version = self.version.wrapping_sub(1);
        }
    }

    #[cold]
    pub(crate) fn look(&mut self, cq_slots: &CqSlots) {
        let mut state = lock(&cq_slots.state);
        let state = &mut *state;
        self.rings.reserve(state.entries.len());
        for index in state.changed.drain(..) {
            if let Some(entry) = state.entries.get_mut(index) {
                self.rings.set(index, entry.wr_ring.as_ref());
                entry.changed = false;
            }
        }
        if core::mem::take(&mut state.srqs_changed) {
            self.srqs = state.srqs.iter().map(|entry| Arc::clone(&entry.slots)).collect();
        }
        self.going.append(&mut state.gone);
        self.version = cq_slots.version.load(Ordering::Relaxed).wrapping_sub(usize::from(self.doubt));
    }

    /// Called when a poll has found the CQ empty. Ends the queues that were destroyed before that poll. Returns false if
    /// others were destroyed since; another poll ends them.
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

    /// Called when the handle is dropped. No thread polls any more.
    pub(crate) fn close(&mut self, cq_slots: &CqSlots) {
        let mut over = {
            let mut state = lock(&cq_slots.state);
            state.closed = true;
            core::mem::take(&mut state.gone)
        };
        over.append(&mut self.gone);
        over.append(&mut self.going);
        over.into_iter().for_each(|gone| cq_slots.end(gone));
    }
}

#[cfg(test)]
#[path = "cq_slots_tests.rs"]
mod tests;
