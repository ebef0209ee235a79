//! The receives of a shared receive queue that have been posted and not been polled.
//!
//! Why they are recorded is described in in_flight.rs. Receives of an SRQ complete in any order, and in the CQs of
//! several QPs, so each has a slot of its own until its completion is polled. The token of a receive contains the
//! number of its slot, the number of uses of the slot, and the number of the SRQ. `tests/orders.rs` compiles this file
//! with loom's atomics in the place of `sync`.
//!
//! One thread posts at a time, and takes free slots. Several threads may poll. They return slots to a list, and the
//! poster takes the whole list at once. So the list has no ABA problem.

use super::sync::{Arc, AtomicU32, AtomicU64, Ordering};
use super::wr_ring::NO_KEY;

/// Bits 32 to 47 of each token of a receive of an SRQ. No queue of a CQ has this index.
pub(crate) const SRQ_INDEX: u32 = 0xffff;

/// The largest capacity, that of soft-RoCE: the number of a slot leaves 12 bits for the count of its uses.
pub(crate) const MAX_CAPACITY: u32 = 1 << 20;

/// Ends a list of slots.
const END: u32 = u32::MAX;

/// The receives of one SRQ.
pub(crate) struct SrqSlots {
    /// The number of the SRQ in tokens.
    srq_id: u16,
    slots: Box<[Slot]>,
    /// The keys of the second and later ranges of each slot: as many per slot as `more`.
    more_lkeys: Box<[AtomicU32]>,
    more: usize,
    /// The lowest bit of the count in a token's lower half. Those below are the slot.
    step: u32,
    /// The first slot of the list that pollers have put back.
    returned: AtomicU32,
    /// The number of filed receives, and of those that were polled.
    filed: AtomicU32,
    retired: AtomicU32,
}

struct Slot {
    /// The `wr_id` of the user.
    wr_id: AtomicU64,
    /// The lower half of the token of its last receive: the slot, and above that a count of records and retirements,
    /// which is odd while the receive is in flight.
    number: AtomicU32,
    /// The next slot of its list.
    next: AtomicU32,
    /// The key of the first range.
    lkey: AtomicU32,
    /// The number that its last receive has got because the provider has refused it, and may have queued it nevertheless; 0
    /// without one. The poster writes it.
    withdrawn: AtomicU32,
}

/// The work request of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrqRetired {
    /// A receive with this `wr_id` of the user. It is no longer in flight.
    Done(u64),
    /// A receive that was withdrawn. It is no longer in flight; its completion is not for the application.
    Silent,
    /// No receive in flight: the completion is reported twice.
    Unexpected,
}

impl SrqSlots {
    /// Creates the slots of an SRQ that holds `capacity` receives of at most `max_sge` ranges.
    pub(crate) fn new(srq_id: u16, capacity: u32, max_sge: u32) -> Self {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        let next = |slot: u32| if slot + 1 < capacity { slot + 1 } else { END };
        let slot = |slot| Slot {
            wr_id: AtomicU64::new(0),
            number: AtomicU32::new(slot),
            next: AtomicU32::new(next(slot)),
            lkey: AtomicU32::new(NO_KEY),
            withdrawn: AtomicU32::new(0),
        };
        let more = max_sge.max(1) as usize - 1;
        let more_lkeys = (capacity as usize).saturating_mul(more);
        SrqSlots {
            srq_id,
            slots: (0..capacity).map(slot).collect(),
            more_lkeys: core::iter::repeat_with(|| AtomicU32::new(NO_KEY)).take(more_lkeys).collect(),
            more,
            step: capacity.next_power_of_two(),
            returned: AtomicU32::new(END),
            filed: AtomicU32::new(0),
            retired: AtomicU32::new(0),
        }
    }

    /// Sets the number of uses of each slot, an even number.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, uses: u32) {
        for (slot, at) in self.slots.iter().zip(0..) {
            slot.number.store(uses.wrapping_mul(self.step) | at, Ordering::Relaxed);
        }
    }

    pub(crate) fn srq_id(&self) -> u16 {
        self.srq_id
    }

    /// The upper half of its tokens.
    pub(crate) fn queue(&self) -> u32 {
        u32::from(self.srq_id) << 16 | SRQ_INDEX
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The number of receives in flight.
    pub(crate) fn unpolled(&self) -> u32 {
        // In this order: a retired receive was filed before.
        let retired = self.retired.load(Ordering::Acquire);
        self.filed.load(Ordering::Relaxed).wrapping_sub(retired)
    }

    fn more_lkeys(&self, slot: u32) -> &[AtomicU32] {
        let start = slot as usize * self.more;
        self.more_lkeys.get(start..start + self.more).unwrap_or_default()
    }

    fn slot(&self, token: u64) -> Option<&Slot> {
        self.slots.get((token as u32 & (self.step - 1)) as usize)
    }

    /// The number of a receive after its withdrawal.
    fn withdrawn(&self, token: u64) -> u32 {
        (token as u32).wrapping_add(self.step.wrapping_mul(2))
    }

    /// Retires a receive: its completion was polled.
    pub(crate) fn retire(&self, token: u64) -> SrqRetired {
        if let Some(wr_id) = self.retire_next(token) {
            return SrqRetired::Done(wr_id);
        }
        let withdrawn = self.withdrawn(token);
        let has_withdrawn = |slot: &&Slot| slot.withdrawn.load(Ordering::Relaxed) == withdrawn;
        let slot = self.slot(token).filter(has_withdrawn);
        if slot.is_some_and(|slot| self.end(slot, withdrawn)) { SrqRetired::Silent } else { SrqRetired::Unexpected }
    }

    /// Retires a receive that is in flight and not withdrawn, and returns the user's `wr_id`.
    pub(crate) fn retire_next(&self, token: u64) -> Option<u64> {
        let slot = self.slot(token)?;
        // What was stored before the receive was handed to the device can be seen when the device has completed it: the
        // provider puts barriers on both sides, as the data itself needs them.
        let wr_id = slot.wr_id.load(Ordering::Relaxed);
        self.end(slot, token as u32).then_some(wr_id)
    }

    /// Gives the slot of a receive with this number back. False if its last receive has another number, or is over.
    fn end(&self, slot: &Slot, number: u32) -> bool {
        let is_odd = number & self.step != 0;
        // Only one of two threads gives the slot back, whatever a provider completes twice. Releases what the poll has
        // written to memory to who finds that the receive is not in flight.
        let after = number.wrapping_add(self.step);
        if !is_odd || slot.number.compare_exchange(number, after, Ordering::Release, Ordering::Acquire).is_err() {
            return false;
        }
        let mut first = self.returned.load(Ordering::Relaxed);
        loop {
            slot.next.store(first, Ordering::Relaxed);
            // Release: makes the slot visible to the poster.
            let at = number & (self.step - 1);
            match self.returned.compare_exchange_weak(first, at, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        self.retired.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether the receive with this token, which was filed, is no longer in flight. Acquires what its poll has written.
    pub(crate) fn is_over(&self, token: u64) -> bool {
        let is_over = |slot: &Slot| {
            let (number, withdrawn) = (slot.number.load(Ordering::Acquire), self.withdrawn(token));
            number != token as u32 && (number != withdrawn || slot.withdrawn.load(Ordering::Relaxed) != withdrawn)
        };
        self.slot(token).is_none_or(is_over)
    }

    /// Stores a receive in a free slot that has its keys. Returns the lower half of its token.
    fn fill(&self, slot: &Slot, wr_id: u64) -> u32 {
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.withdrawn.store(0, Ordering::Relaxed);
        let number = slot.number.load(Ordering::Relaxed).wrapping_add(self.step);
        slot.number.store(number, Ordering::Release);
        // Only the poster writes it.
        self.filed.store(self.filed.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        number
    }

    /// Whether a receive in flight names this key.
    pub(crate) fn names(&self, lkey: u32) -> bool {
        self.slots.iter().zip(0..).any(|(slot, at)| {
            // An odd number may be that of an earlier use, and the key that of a later one: then the acquired key
            // orders the end of the earlier use before this.
            let names = |key: &AtomicU32| key.load(Ordering::Acquire) == lkey;
            slot.number.load(Ordering::Acquire) & self.step != 0
                && (names(&slot.lkey) || self.more_lkeys(at).iter().any(names))
        })
    }
}

/// The poster's side. It belongs to the one handle of the SRQ.
pub(crate) struct SrqCursor {
    slots: Arc<SrqSlots>,
    /// The first of the free slots.
    free: u32,
    /// The upper half of its tokens.
    srq_id: u64,
}

impl SrqCursor {
    /// Creates the only cursor of these slots, which are all free.
    pub(crate) fn new(slots: &Arc<SrqSlots>) -> Self {
        SrqCursor { slots: Arc::clone(slots), free: 0, srq_id: u64::from(slots.queue()) << 32 }
    }

    /// Stores a receive with the keys of its ranges, at most `max_sge`. From now on it is in flight. Returns the token
    /// to post it with; `None` if the SRQ is full. If the provider refuses it, [`SrqCursor::withdraw`] follows.
    pub(crate) fn file(&mut self, wr_id: u64, lkeys: impl IntoIterator<Item = u32>) -> Option<u64> {
        let at = self.next_free();
        let slot = self.slots.slots.get(at as usize)?;
        let mut lkeys = lkeys.into_iter();
        // See `names`.
        slot.lkey.store(lkeys.next().unwrap_or(NO_KEY), Ordering::Release);
        for key in self.slots.more_lkeys(at) {
            key.store(lkeys.next().unwrap_or(NO_KEY), Ordering::Release);
        }
        self.free = slot.next.load(Ordering::Relaxed);
        Some(self.srq_id | u64::from(self.slots.fill(slot, wr_id)))
    }

    /// The first free slot; [`END`] if there is none.
    fn next_free(&mut self) -> u32 {
        if self.free == END {
            self.free = self.slots.returned.swap(END, Ordering::Acquire);
        }
        self.free
    }

    /// Withdraws the receive with this token, which the provider has refused. It stays in flight, because the provider
    /// may have queued it, and its completion is not for the application. False if that has been polled: then the
    /// receive was posted.
    #[cold]
    pub(crate) fn withdraw(&mut self, token: u64) -> bool {
        let (slots, withdrawn) = (&self.slots, self.slots.withdrawn(token));
        slots.slot(token).is_some_and(|slot| {
            slot.withdrawn.store(withdrawn, Ordering::Relaxed);
            // Of this and the poll the first one decides.
            slot.number.compare_exchange(token as u32, withdrawn, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// Returns the number of free slots.
    pub(crate) fn room(&self) -> u32 {
        self.slots.capacity().saturating_sub(self.slots.unpolled())
    }
}

/// Returns the number of the SRQ of a token; `None` if it is not of an SRQ.
pub(crate) fn srq_of(token: u64) -> Option<u16> {
    ((token >> 32) as u32 & 0xffff == SRQ_INDEX).then_some((token >> 48) as u16)
}
