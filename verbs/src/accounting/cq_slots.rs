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
//! CQ's depth, and the memory that its work requests name. None is left once `ibv_poll_cq` has returned 0 after the
//! destruction, or the handle of the CQ is dropped, because no thread polls then. If all completions of a queue were
//! polled before the destruction, none is left at once.
//!
//! # Shared receive queues
//!
//! The tokens of the receives of an SRQ name the SRQ, not a queue of the CQ (srq_slots.rs). A CQ stores the SRQs that
//! its QPs use, and reserves a share of its depth for each. A destroyed QP may have left completions. It keeps the SRQ
//! at the CQ, and the SRQ's work in flight, as long as above. Its remaining completions are not dropped: they return
//! the receives to the application.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use cmid_proto::Errno;
use cmid_proto::datapath::CqRoom;
use parking_lot::{Mutex, MutexGuard};

use crate::accounting::in_flight::{InFlightIndex, PdWork};
use crate::accounting::srq_slots::{SRQ_INDEX, SrqSlots};
use crate::accounting::srq_table::SrqTable;
use crate::accounting::wr_ring::WrRing;

/// The bits of the count in a queue's id. The upper bit is not used, because a token is below 2^63 (raw.rs).
const ASSIGNED: u16 = u16::MAX >> 1;
/// Bits of a queue's id that are an index.
const INDEX_BITS: u32 = 16;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

// The last index is that of no queue.
static_assertions::const_assert!(SRQ_INDEX == INDEX);

/// The work queues that report to one CQ, by index.
pub(crate) struct CqSlots {
    pub(super) state: Mutex<State>,
    /// Counts the changes of the list of queues, so that the poller reads it only after a change.
    pub(super) version: AtomicUsize,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    /// The entries that have changed since the last poll, each once. A refresh is O(changes).
    pub(super) changed: Vec<usize>,
    /// Free indices that were used before. Other indices without a ring belong to queues that will get one, or to
    /// destroyed queues that may have left completions.
    free: Vec<usize>,
    /// The number of assigned ids, modulo 2^15.
    assigned: u16,
    /// The number of queues with a reservation. Each has an index.
    queues: u32,
    room: CqRoom,
    /// Destroyed queues that may have left completions, and that the poller has not processed.
    pub(super) gone: Vec<Gone>,
    pub(super) srqs: Vec<SrqEntry>,
    /// Whether they have changed since the poller read them.
    pub(super) srqs_changed: bool,
    /// Whether the handle is dropped. No thread polls any more.
    pub(super) closed: bool,
}

/// An SRQ that QPs of the CQ use.
pub(super) struct SrqEntry {
    pub(super) slots: Arc<SrqSlots>,
    /// The number of QPs, including destroyed ones that may have left completions.
    qps: u32,
    /// The numbers of the destroyed ones.
    left: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) wr_ring: Option<Arc<WrRing>>,
    /// Whether it is among the changed.
    pub(super) changed: bool,
}

/// A queue whose QP is destroyed, and that may have left completions in the CQ. It is dropped when none is left, or when the
/// CQ is no longer polled.
pub(crate) enum Gone {
    Queue(GoneQueue),
    /// It used this SRQ; with its number. The last one ends the pins of the SRQ, if the SRQ is destroyed.
    Srq(Arc<SrqTable>, u32),
}

/// A work queue of a destroyed QP. Its drop ends the pins of its work in flight, and drops what its requests own.
pub(crate) struct GoneQueue {
    pub(crate) queue_id: u32,
    /// The capacity of its reservation.
    pub(crate) capacity: u32,
    pub(crate) wr_ring: Arc<WrRing>,
    /// Its index among the queues of its PD.
    pub(crate) place: InFlightIndex,
    pub(crate) pd: Weak<dyn PdWork>,
    /// What its requests own. Dropped after its pins, because the owner of a buffer may panic.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(crate) owned: Option<Box<dyn Send + Sync>>,
}

impl CqSlots {
    /// Creates the slots of a CQ with this depth.
    pub(crate) fn new(depth: u32) -> Self {
        let state = State { room: CqRoom::new(depth), ..State::default() };
        CqSlots { state: Mutex::new(state), version: AtomicUsize::new(0) }
    }

    pub(crate) fn room(&self) -> CqRoom {
        self.state.lock().room
    }

    /// Changes the depth, after a resize.
    pub(crate) fn set_depth(&self, depth: u32) {
        let mut state = self.state.lock();
        state.room = state.room.with_depth(depth);
    }

    /// Whether no work request of a queue is in flight, and there is no destroyed queue that the poller does not know.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let mut rings = state.entries.iter().filter_map(|entry| entry.wr_ring.as_ref());
        rings.all(|wr_ring| wr_ring.is_idle()) && state.gone.is_empty()
    }

    /// Whether a receive of an SRQ is in flight, which a QP of the CQ may take.
    pub(crate) fn awaits_srq(&self) -> bool {
        self.state.lock().srqs.iter().any(|entry| entry.slots.unpolled() > 0)
    }

    /// Reserves an id for a queue, and room for `capacity` completions.
    ///
    /// # Errors
    /// `EOVERFLOW` if the CQ has no room for so many more completions, `ENOMEM` if there are fewer ids than
    /// reservations. Nothing is reserved then.
    pub(crate) fn reserve(&self, capacity: u32) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.room.check(capacity).map_err(|_| Errno::EOVERFLOW)?;
        if state.queues == INDEX {
            return Err(Errno::ENOMEM);
        }
        state.queues += 1;
        state.room.reserve(capacity).map_err(|_| Errno::EOVERFLOW)
    }

    /// Gives up the reservation of a queue that has no id.
    pub(crate) fn cancel(&self, capacity: u32) {
        self.state.lock().cancel(capacity);
    }

    /// Assigns an id to a queue that has a reservation. Before [`CqSlots::set_ring`], completions with this id belong
    /// to no queue.
    pub(crate) fn assign(&self) -> u32 {
        let mut state = self.state.lock();
        let index = state.free.pop().unwrap_or_else(|| {
            state.entries.push(Entry::default());
            state.entries.len() - 1
        });
        state.assigned = state.assigned.wrapping_add(1) & ASSIGNED;
        u32::from(state.assigned) << INDEX_BITS | index as u32
    }

    /// Sets the ring of a queue. Its completions are accounted from now on.
    pub(crate) fn set_ring(&self, queue_id: u32, wr_ring: &Arc<WrRing>) {
        let mut state = self.state.lock();
        state.set_ring(queue_id, Some(Arc::clone(wr_ring)));
        // With the lock still held.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that the QP of a queue is destroyed. Called once for each id with a ring. Returns the queue if it is over at
    /// once. Its drop may panic, because that of the owner of a buffer may: it is dropped when all else is done.
    #[must_use]
    pub(crate) fn leave(&self, gone: GoneQueue) -> Option<Gone> {
        let mut state = self.state.lock();
        state.set_ring(gone.queue_id, None);
        let is_idle = gone.wr_ring.is_idle();
        self.add_gone(state, Gone::Queue(gone), is_idle)
    }

    /// Adds the use of an SRQ by a QP that is about to be created.
    ///
    /// # Errors
    /// `EOVERFLOW` if the CQ has no room for the completions of its receives, `ENOMEM` if the SRQ has as many QPs there as a
    /// CQ has ids. Destroyed ones count until the CQ was found empty.
    pub(crate) fn attach_srq(&self, table: &SrqTable) -> Result<(), Errno> {
        let (mut state, slots) = (self.state.lock(), table.slots());
        if let Some(entry) = state.srqs.iter_mut().find(|entry| Arc::ptr_eq(&entry.slots, slots)) {
            entry.qps = entry.qps.checked_add(1).filter(|qps| *qps <= INDEX).ok_or(Errno::ENOMEM)?;
            return Ok(());
        }
        state.room.reserve(slots.capacity()).map_err(|_| Errno::EOVERFLOW)?;
        state.srqs.push(SrqEntry { slots: Arc::clone(slots), qps: 1, left: Vec::new() });
        state.srqs_changed = true;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a QP with this SRQ reports to it.
    pub(crate) fn has_srq(&self, table: &SrqTable) -> bool {
        self.state.lock().srqs.iter().any(|entry| Arc::ptr_eq(&entry.slots, table.slots()))
    }

    /// Whether a destroyed QP with this SRQ and this number may have left completions.
    pub(crate) fn has_left(&self, table: &SrqTable, qp_num: u32) -> bool {
        self.state
            .lock()
            .srqs
            .iter()
            .any(|entry| Arc::ptr_eq(&entry.slots, table.slots()) && entry.left.contains(&qp_num))
    }

    /// Called before the destruction of a QP with an SRQ: another one may have its number after that.
    pub(crate) fn leaves(&self, table: &SrqTable, qp_num: u32) {
        let mut state = self.state.lock();
        if let Some(entry) = state.srqs.iter_mut().find(|entry| Arc::ptr_eq(&entry.slots, table.slots())) {
            entry.left.push(qp_num);
        }
    }

    /// Records that a QP with an SRQ is destroyed, which had this number; 0 if it could not be created, and so has left
    /// nothing. Called once for each [`attach_srq`](CqSlots::attach_srq). Returns the use of the SRQ, as
    /// [`leave`](CqSlots::leave) does.
    #[must_use]
    pub(crate) fn leave_srq(&self, table: Arc<SrqTable>, qp_num: u32) -> Option<Gone> {
        let is_idle = qp_num == 0 || table.slots().unpolled() == 0;
        self.add_gone(self.state.lock(), Gone::Srq(table, qp_num), is_idle)
    }

    fn add_gone(&self, mut state: MutexGuard<'_, State>, gone: Gone, is_idle: bool) -> Option<Gone> {
        let over = if state.closed || is_idle {
            state.release(&gone);
            Some(gone)
        } else {
            state.gone.push(gone);
            None
        };
        self.version.fetch_add(1, Ordering::Release);
        over
    }

    /// Ends a destroyed queue. Called when none of its completions is left, or when the CQ is no longer polled.
    pub(super) fn end(&self, gone: Gone) {
        self.state.lock().release(&gone);
        drop(gone);
    }
}

impl Drop for GoneQueue {
    fn drop(&mut self) {
        if let Some(pd) = self.pd.upgrade() {
            pd.in_flight().remove(self.place);
            pd.released();
        }
    }
}

impl State {
    fn cancel(&mut self, capacity: u32) {
        self.queues = self.queues.saturating_sub(1);
        self.room.release(capacity);
    }

    /// Frees the id and the reservation.
    fn release(&mut self, gone: &Gone) {
        match gone {
            Gone::Queue(gone) => {
                self.free.push((gone.queue_id & INDEX) as usize);
                self.cancel(gone.capacity);
            }
            Gone::Srq(table, qp_num) => self.release_srq(table.slots(), *qp_num),
        }
    }

    fn release_srq(&mut self, slots: &Arc<SrqSlots>, qp_num: u32) {
        let Some(at) = self.srqs.iter().position(|entry| Arc::ptr_eq(&entry.slots, slots)) else { return };
        let Some(entry) = self.srqs.get_mut(at) else { return };
        entry.qps = entry.qps.saturating_sub(1);
        if let Some(at) = entry.left.iter().position(|left| *left == qp_num) {
            entry.left.swap_remove(at);
        }
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

#[cfg(test)]
#[path = "cq_slots_tests.rs"]
mod tests;
