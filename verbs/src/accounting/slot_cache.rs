//! The poller's copy of the work queues of a CQ.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use cmid_proto::datapath::{Completion, WcOpcode};

use crate::accounting::cq_slots::{CqSlots, Gone};
use crate::accounting::retire::Retired;
use crate::accounting::rings::{Known, Rings};
use crate::accounting::srq_slots::{SrqRetired, SrqSlots, srq_of};

/// The poller's copy. Each CQ has one.
#[derive(Default)]
pub(crate) struct SlotCache {
    pub(super) rings: Rings,
    srqs: Vec<Arc<SrqSlots>>,
    /// The version of the copied list. After an unexpected completion it is set to an older one, so that one comparison
    /// covers both cases.
    version: usize,
    /// Whether an existing queue has completed a work request that was not in flight. `poll` reports it as `EIO`.
    doubt: bool,
    /// Queues whose QP was destroyed before the last poll.
    gone: Vec<Gone>,
    /// Queues whose QP was destroyed, perhaps during the last poll.
    going: Vec<Gone>,
}

impl SlotCache {
    /// Whether the copy is up to date, and no unexpected completion is to be reported.
    pub(crate) fn is_current(&self, cq_slots: &CqSlots) -> bool {
        self.version == cq_slots.version.load(Ordering::Acquire)
    }

    /// Returns the rings of the known queues.
    pub(crate) fn known(&self) -> Known<'_> {
        self.rings.known()
    }

    /// Retires the completions after the first `kept`, and restores their `wr_id`s, and the opcode of failed ones,
    /// which providers do not set. Drops the completions of destroyed queues, of withdrawn requests, and of
    /// unsignaled ones that have succeeded (iWARP). Returns the number of completions that are left, including the first `kept`.
    pub(crate) fn retire(&mut self, cq_slots: &CqSlots, completions: &mut [Completion], kept: usize) -> usize {
        if !self.is_current(cq_slots) {
            self.look(cq_slots);
        }
        let mut left = kept;
        for at in kept..completions.len() {
            let Some(&completion) = completions.get(at) else { break };
            let retired = match srq_of(completion.wr_id) {
                Some(srq_id) => {
                    self.retire_srq(cq_slots, srq_id, completion.wr_id).map(|wr_id| (wr_id, WcOpcode::RECV))
                }
                None => self.retire_any(cq_slots, &completion),
            };
            if let (Some((wr_id, opcode)), Some(place)) = (retired, completions.get_mut(left)) {
                let opcode = if completion.is_success() { completion.opcode } else { opcode };
                *place = Completion { wr_id, opcode, ..completion };
                left += 1;
            }
        }
        left
    }

    /// Whether an existing queue has completed a work request that was not in flight. Clears the flag.
    pub(crate) fn take_doubt(&mut self) -> bool {
        core::mem::take(&mut self.doubt)
    }

    /// Retires a completion of a work request. Those before it may not have been signaled.
    fn retire_any(&mut self, cq_slots: &CqSlots, completion: &Completion) -> Option<(u64, WcOpcode)> {
        let token = completion.wr_id;
        let mut retired = self.known().ring(token).retire(token);
        if matches!(retired, Retired::Foreign | Retired::Unexpected) {
            // The queue may be new, or destroyed.
            self.look(cq_slots);
            retired = self.known().ring(token).retire(token);
        }
        match retired {
            Retired::Done(wr_id, opcode) => return Some((wr_id, opcode)),
            Retired::Unsignaled(wr_id, opcode) => return Some((wr_id, opcode)).filter(|_| !completion.is_success()),
            Retired::Silent | Retired::Foreign => {}
            Retired::Unexpected => self.set_doubt(),
        }
        None
    }

    /// Retires a polled receive of an SRQ, and returns the user's `wr_id`; `None` if it is not in flight or withdrawn,
    /// or no receive of an SRQ of this CQ.
    #[cold]
    pub(crate) fn retire_next_srq(&self, token: u64) -> Option<u64> {
        self.srq(srq_of(token)?)?.retire_next(token)
    }

    fn srq(&self, srq_id: u16) -> Option<&SrqSlots> {
        self.srqs.iter().map(|slots| &**slots).find(|slots| slots.srq_id() == srq_id)
    }

    /// The same for a receive of an SRQ. All SRQs of the CQ are known: one is attached before its QP is created.
    fn retire_srq(&mut self, cq_slots: &CqSlots, srq_id: u16, token: u64) -> Option<u64> {
        if !self.is_current(cq_slots) {
            self.look(cq_slots);
        }
        match self.srq(srq_id)?.retire(token) {
            SrqRetired::Done(wr_id) => return Some(wr_id),
            SrqRetired::Silent => {}
            SrqRetired::Unexpected => self.set_doubt(),
        }
        None
    }

    fn set_doubt(&mut self) {
        if !core::mem::replace(&mut self.doubt, true) {
            self.version = self.version.wrapping_sub(1);
        }
    }

    #[cold]
    pub(crate) fn look(&mut self, cq_slots: &CqSlots) {
        let mut state = cq_slots.state.lock();
        let state = &mut *state;
        self.rings.reserve(state.entries.len());
        for index in state.changed.drain(..) {
            if let Some(entry) = state.entries.get_mut(index) {
                self.rings.set(index, entry.wr_ring.as_ref());
                entry.wr_ring.iter().for_each(|wr_ring| wr_ring.heed_withdrawn());
                entry.changed = false;
            }
        }
        if core::mem::take(&mut state.srqs_changed) {
            self.srqs = state.srqs.iter().map(|entry| Arc::clone(&entry.slots)).collect();
        }
        self.going.append(&mut state.gone);
        self.version = cq_slots.version.load(Ordering::Relaxed).wrapping_sub(usize::from(self.doubt));
    }

    /// Called when a poll has found the CQ empty. Ends the queues that were destroyed before that poll. Returns false
    /// if others were destroyed since; another poll ends them.
    pub(crate) fn refresh(&mut self, cq_slots: &CqSlots) -> bool {
        if self.none_gone() {
            return true;
        }
        // One by one: the owner of a buffer may panic, and the next call ends the others then.
        while let Some(gone) = self.gone.pop() {
            cq_slots.end(gone);
        }
        self.gone = core::mem::take(&mut self.going);
        self.gone.is_empty()
    }

    /// Whether no work request is in flight, and no destroyed queue may have left completions.
    pub(crate) fn is_idle(&self, cq_slots: &CqSlots) -> bool {
        self.none_gone() && cq_slots.is_idle()
    }

    /// Whether no destroyed queue is known that may have left completions.
    pub(crate) fn none_gone(&self) -> bool {
        self.gone.is_empty() && self.going.is_empty()
    }

    /// Called when the handle is dropped. No thread polls any more.
    pub(crate) fn close(&mut self, cq_slots: &CqSlots) {
        let mut over = {
            let mut state = cq_slots.state.lock();
            state.closed = true;
            core::mem::take(&mut state.gone)
        };
        over.append(&mut self.gone);
        over.append(&mut self.going);
        over.into_iter().for_each(|gone| cq_slots.end(gone));
    }
}
