//! One work queue: what has been posted to it and not been polled, in a ring.
//!
//! What it is good for, and why it costs so little, stands in flight.rs. `tests/orders.rs` compiles this file with
//! loom's atomics in the place of `sync`, and goes through what two threads can see of each other.

use super::sync::{Arc, AtomicU32, AtomicU64, Ordering};

/// A number with a cache line of its own, so that the two who write do not disturb each other: whatever lies beside
/// it is too far away. Without an alignment, which would make allocating it three times as expensive.
#[repr(C)]
struct Counter {
    _before: [u32; 15],
    number: AtomicU32,
    _after: [u32; 15],
}

impl Counter {
    fn new() -> Self {
        Counter { _before: [0; 15], number: AtomicU32::new(0), _after: [0; 15] }
    }
}

/// One work queue of a QP: what has been posted, in a ring.
pub(crate) struct WrRing {
    seat: u32,
    /// How many work requests may be posted whose completions have not been polled.
    capacity: u32,
    ring: Box<[Slot]>,
    /// The number of posted work requests. Written by the poster.
    posted: Counter,
    /// The number of them that are completed and polled; work requests of one queue complete in order. Written by the
    /// poller.
    retired: Counter,
}

#[derive(Default)]
struct Slot {
    /// The user's number.
    wr_id: AtomicU64,
    /// The key of the memory that it names; [`NO_KEY`] if the device need not fetch anything.
    lkey: AtomicU32,
}

/// Stands for "no memory". Should a registration have this key, it is taken for pinned now and then.
pub(crate) const NO_KEY: u32 = 0;

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    /// A work request with this number of the user's, which is no longer in flight.
    Done(u64),
    /// Of another queue, or of the one that had the seat before.
    Foreign,
    /// Of this queue, but of no work request that is in flight: it comes a second time, or after a later one.
    Unexpected,
}

impl WrRing {
    /// For a queue that holds `capacity` work requests, in a seat of its CQ.
    pub(crate) fn new(seat: u32, capacity: u32) -> Self {
        let capacity = capacity.min(1 << 30);
        let len = capacity.max(1).next_power_of_two();
        WrRing {
            seat,
            capacity,
            ring: core::iter::repeat_with(Slot::default).take(len as usize).collect(),
            posted: Counter::new(),
            retired: Counter::new(),
        }
    }

    /// As after so many work requests.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, number: u32) {
        self.posted.number.store(number, Ordering::Relaxed);
        self.retired.number.store(number, Ordering::Relaxed);
    }

    fn len(&self) -> u32 {
        self.ring.len() as u32
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        // The length is a power of two.
        self.ring.get(number as usize & self.ring.len().wrapping_sub(1))
    }

    /// Its completion has been polled.
    #[inline]
    pub(crate) fn retire(&self, token: u64) -> Retired {
        let number = token as u32;
        let retired = self.retired.number.load(Ordering::Relaxed);
        if (token >> 32) as u32 != self.seat {
            return Retired::Foreign;
        }
        if number.wrapping_sub(retired) >= self.len() {
            return Retired::Unexpected;
        }
        let Some(slot) = self.slot(number) else { return Retired::Unexpected };
        // What was stored before the work request was handed to the device can be seen when the device has completed
        // it: the provider puts barriers on both sides, as the data itself needs them.
        let wr_id = slot.wr_id.load(Ordering::Relaxed);
        // Releases the slot, which has just been read, to the poster.
        self.retired.number.store(number.wrapping_add(1), Ordering::Release);
        Retired::Done(wr_id)
    }

    /// Whether nothing is in flight, after the last post.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.number.load(Ordering::Acquire) == self.retired.number.load(Ordering::Acquire)
    }

    /// Whether a work request in flight names this key.
    pub(crate) fn names(&self, lkey: u32) -> bool {
        let (posted, retired) =
            (self.posted.number.load(Ordering::Acquire), self.retired.number.load(Ordering::Acquire));
        // A work request of another thread may have completed before that thread came to count it: less than none.
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        (0..pending)
            .filter_map(|at| self.slot(retired.wrapping_add(at)))
            .any(|slot| slot.lkey.load(Ordering::Relaxed) == lkey)
    }
}

/// The position of the poster. It belongs to the one handle of the QP, so it needs no atomics.
pub(crate) struct Cursor {
    wr_ring: Arc<WrRing>,
    /// The upper half of its tokens.
    seat: u64,
    next: u32,
    /// As far as the queue is known to have room.
    limit: u32,
}

impl Cursor {
    pub(crate) fn new(wr_ring: &Arc<WrRing>) -> Self {
        let next = wr_ring.posted.number.load(Ordering::Relaxed);
        let (seat, limit) = (u64::from(wr_ring.seat) << 32, next.wrapping_add(wr_ring.capacity));
        Cursor { wr_ring: Arc::clone(wr_ring), seat, next, limit }
    }

    /// Stores a work request and returns the token to post it with; `None` if the queue is full. Unless
    /// [`Cursor::advance`] follows, it was not posted.
    #[inline]
    pub(crate) fn file(&mut self, wr_id: u64, lkey: u32) -> Option<u64> {
        if self.next == self.limit {
            self.look()?;
        }
        let slot = self.wr_ring.slot(self.next)?;
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.lkey.store(lkey, Ordering::Relaxed);
        Some(self.seat | u64::from(self.next))
    }

    /// What was filed has been posted.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.wr_ring.posted.number.store(self.next, Ordering::Release);
    }

    /// Reads the position of the poller.
    #[cold]
    fn look(&mut self) -> Option<()> {
        self.limit = self.wr_ring.retired.number.load(Ordering::Acquire).wrapping_add(self.wr_ring.capacity);
        (self.next != self.limit).then_some(())
    }
}
