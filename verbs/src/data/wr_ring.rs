//! One work queue: what has been posted to it and not been polled, in a ring.
//!
//! Its purpose and its cost are described in in_flight.rs. `tests/orders.rs` compiles this file with
//! loom's atomics in the place of `sync`, and goes through what two threads can see of each other.

use super::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};

/// A number with its own cache line, because poster and poller write to different numbers. It uses padding instead of an
/// alignment, which would make its allocation three times as expensive.
#[repr(C)]
struct Counter<N> {
    _before: [u32; 15],
    number: N,
    _after: [u32; 15],
}

impl<N> Counter<N> {
    fn new(number: N) -> Self {
        Counter { _before: [0; 15], number, _after: [0; 15] }
    }
}

/// The work requests of one work queue of a QP, in a ring.
pub(crate) struct WrRing {
    /// The id of the queue at its CQ.
    queue_id: u32,
    /// The maximum number of work requests without a polled completion.
    capacity: u32,
    /// The slots. Their number is a power of two.
    ring: Box<[Slot]>,
    /// The length of the ring minus 1.
    mask: u64,
    /// Room for the keys of the second and later ranges of each slot: as many per slot as `more`.
    more_keys: Box<[AtomicU32]>,
    more: usize,
    /// The number of posted work requests. Written by the poster.
    posted: Counter<AtomicU32>,
    /// The token of the last one that is completed and polled: work requests of one queue complete in order. Written by
    /// the poller. Before the first one, the token before the first one's.
    last_retired: Counter<AtomicU64>,
}

#[derive(Default)]
struct Slot {
    /// The `wr_id` of the user.
    wr_id: AtomicU64,
    /// In the lower half the key of the first range of memory; [`NO_KEY`] if the device need not fetch anything. In the
    /// upper half the number of keys in `more_keys`.
    keys: AtomicU64,
}

impl Slot {
    /// Stores a work request with at most one range.
    #[inline(always)]
    fn store(&self, wr_id: u64, lkey: u32) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.keys.store(u64::from(lkey), Ordering::Relaxed);
    }
}

/// The key of "no memory". A registration with this key can appear to be pinned.
pub(crate) const NO_KEY: u32 = 0;

/// The work request of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    /// A work request with this `wr_id` of the user. It is no longer in flight.
    Done(u64),
    /// A work request of another queue, or of an earlier one with the same index.
    Foreign,
    /// No work request in flight of this queue: the completion is reported twice, or after a later one.
    Unexpected,
}

impl WrRing {
    /// Creates the ring of a queue that holds `capacity` work requests of at most `max_sge` ranges, with its id at its CQ.
    pub(crate) fn new(queue_id: u32, capacity: u32, max_sge: u32) -> Self {
        let capacity = capacity.min(1 << 30);
        let len = capacity.max(1).next_power_of_two() as usize;
        let more = max_sge.saturating_sub(1) as usize;
        WrRing {
            queue_id,
            capacity,
            mask: len as u64 - 1,
            ring: core::iter::repeat_with(Slot::default).take(len).collect(),
            more_keys: core::iter::repeat_with(AtomicU32::default).take(len.saturating_mul(more)).collect(),
            more,
            // So that the number of the last one is 0, and not the largest: see `retire_next`.
            posted: Counter::new(AtomicU32::new(1)),
            last_retired: Counter::new(AtomicU64::new(u64::from(queue_id) << 32)),
        }
    }

    /// Stands for a ring that is not there: it is full, and empty, and has the index of no queue of a CQ.
    pub(crate) fn nothing() -> Arc<Self> {
        Arc::new(WrRing::new(u32::MAX, 0, 0))
    }

    /// As after so many work requests.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, number: u32) {
        self.posted.number.store(number, Ordering::Relaxed);
        let last = u64::from(self.queue_id) << 32 | u64::from(number.wrapping_sub(1));
        self.last_retired.number.store(last, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, number: u32) -> &Slot {
        // SAFETY: a number and the mask is at most the mask, which is the length of the ring minus 1 (`new`). Neither
        // changes.
        unsafe { self.ring.get_unchecked((u64::from(number) & self.mask) as usize) }
    }

    /// The room for the keys of the second and later ranges of a slot.
    fn more_keys(&self, number: u32) -> &[AtomicU32] {
        let start = (u64::from(number) & self.mask) as usize * self.more;
        self.more_keys.get(start..start + self.more).unwrap_or_default()
    }

    /// Stores the keys of the second and later ranges of a work request, whose first one is `lkey`.
    fn store_more(&self, number: u32, lkey: u32, more: &[u32]) {
        let room = self.more_keys(number);
        room.iter().zip(more).for_each(|(key, &lkey)| key.store(lkey, Ordering::Relaxed));
        self.slot(number).keys.store((more.len() as u64) << 32 | u64::from(lkey), Ordering::Relaxed);
    }

    /// Returns the number up to which the queue has room. Reads the position of the poller.
    #[cold]
    fn limit(&self) -> u32 {
        let limit = self.retired(Ordering::Acquire).wrapping_add(self.capacity);
        // For `names`: a load of a key that is stored from now on comes after those polls.
        fence(Ordering::Release);
        limit
    }

    /// Retires the work request of a polled completion, and returns the user's `wr_id`. The token has the index of this
    /// queue at its CQ, or this is [`WrRing::nothing`]. `None` if the token is not one of the next ones of this queue;
    /// [`WrRing::retire`] returns the reason.
    #[inline(always)]
    pub(crate) fn retire_next(&self, token: u64) -> Option<u64> {
        // The upper half of another id with the index differs by more than 1, so its token is too far away. Where the
        // number wraps around, the right token is as well.
        let ahead = token.wrapping_sub(self.last_retired.number.load(Ordering::Relaxed));
        if ahead.wrapping_sub(1) > self.mask { None } else { Some(self.take(token)) }
    }

    /// The same with the reason.
    pub(crate) fn retire(&self, token: u64) -> Retired {
        if (token >> 32) as u32 != self.queue_id {
            return Retired::Foreign;
        }
        if u64::from((token as u32).wrapping_sub(self.retired(Ordering::Relaxed))) > self.mask {
            return Retired::Unexpected;
        }
        Retired::Done(self.take(token))
    }

    #[inline(always)]
    fn take(&self, token: u64) -> u64 {
        // What was stored before the work request was handed to the device can be seen when the device has completed
        // it: the provider puts barriers on both sides, as the data itself needs them.
        let wr_id = self.slot(token as u32).wr_id.load(Ordering::Relaxed);
        // Releases the slot, which has just been read, to the poster.
        self.last_retired.number.store(token, Ordering::Release);
        wr_id
    }

    /// The number of work requests that are completed and polled.
    #[inline]
    fn retired(&self, ordering: Ordering) -> u32 {
        (self.last_retired.number.load(ordering) as u32).wrapping_add(1)
    }

    /// Whether nothing is in flight. Called after the last post.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.number.load(Ordering::Acquire) == self.retired(Ordering::Acquire)
    }

    /// Whether a work request in flight names this key.
    pub(crate) fn names(&self, lkey: u32) -> bool {
        let (posted, retired) = (self.posted.number.load(Ordering::Acquire), self.retired(Ordering::Acquire));
        // A work request of another thread may have completed before that thread came to count it: less than none.
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        let names = (0..pending).map(|at| retired.wrapping_add(at)).any(|number| {
            let keys = self.slot(number).keys.load(Ordering::Relaxed);
            let more = self.more_keys(number).iter().take((keys >> 32) as usize);
            keys as u32 == lkey || more.into_iter().any(|key| key.load(Ordering::Relaxed) == lkey)
        });
        // A key may be that of a later request in the same slot. With the fence of `look`, the poll of the earlier one
        // comes before what follows here, such as that its memory is used again.
        fence(Ordering::Acquire);
        names
    }
}

/// The work requests of a batch. A copy of the poster's position, which stays in registers.
pub(crate) struct Filing<'a> {
    wr_ring: &'a WrRing,
    slots: &'a [Slot],
    mask: u64,
    queue_id: u64,
    next: u32,
    limit: u32,
}

impl Filing<'_> {
    /// As [`Cursor::file`], after those that were filed before.
    #[inline]
    pub(crate) fn file(&mut self, wr_id: u64, lkeys: &[u32]) -> Option<u64> {
        let (&lkey, more) = lkeys.split_first().unwrap_or((&NO_KEY, &[]));
        let number = self.next;
        let token = self.file_one(wr_id, lkey)?;
        self.wr_ring.store_more(number, lkey, more);
        Some(token)
    }

    /// As [`Cursor::file_one`], after those that were filed before.
    #[inline(always)]
    pub(crate) fn file_one(&mut self, wr_id: u64, lkey: u32) -> Option<u64> {
        let number = self.next;
        if number == self.limit {
            self.limit = self.wr_ring.limit();
            if number == self.limit {
                return None;
            }
        }
        // SAFETY: as in `WrRing::slot`: slots and mask are those of the ring.
        let slot = unsafe { self.slots.get_unchecked((u64::from(number) & self.mask) as usize) };
        slot.store(wr_id, lkey);
        self.next = number.wrapping_add(1);
        Some(self.queue_id | u64::from(number))
    }
}

/// The position of the poster. It belongs to the one handle of the QP, so it needs no atomics.
pub(crate) struct Cursor {
    wr_ring: Arc<WrRing>,
    /// The upper half of its tokens.
    queue_id: u64,
    next: u32,
    /// The number of posts up to which the queue is known to have room.
    limit: u32,
}

impl Cursor {
    pub(crate) fn new(wr_ring: &Arc<WrRing>) -> Self {
        let next = wr_ring.posted.number.load(Ordering::Relaxed);
        let (queue_id, limit) = (u64::from(wr_ring.queue_id) << 32, next.wrapping_add(wr_ring.capacity));
        Cursor { wr_ring: Arc::clone(wr_ring), queue_id, next, limit }
    }

    /// Stores the next work request. `lkeys` are the keys of its ranges, at most as many as the ring was made for. Returns
    /// the token to post it with; `None` if the queue is full. Unless [`Cursor::advance`] follows, it was not posted.
    #[inline]
    pub(crate) fn file(&mut self, wr_id: u64, lkeys: &[u32]) -> Option<u64> {
        let number = self.next;
        if number == self.limit {
            self.look(number)?;
        }
        let (&lkey, more) = lkeys.split_first().unwrap_or((&NO_KEY, &[]));
        self.wr_ring.slot(number).store(wr_id, lkey);
        self.wr_ring.store_more(number, lkey, more);
        Some(self.queue_id | u64::from(number))
    }

    /// The same with the key of the only range.
    #[inline(always)]
    pub(crate) fn file_one(&mut self, wr_id: u64, lkey: u32) -> Option<u64> {
        let number = self.next;
        if number == self.limit {
            self.look(number)?;
        }
        self.wr_ring.slot(number).store(wr_id, lkey);
        Some(self.queue_id | u64::from(number))
    }

    /// The next `count` requests that were filed have been posted.
    #[inline]
    pub(crate) fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.wr_ring.posted.number.store(self.next, Ordering::Release);
    }

    /// Whether the queue has no ring yet.
    #[inline]
    pub(crate) fn is_without_ring(&self) -> bool {
        self.wr_ring.capacity == 0
    }

    /// Files a batch. Unless [`Cursor::advance`] follows, it was not posted.
    #[inline(always)]
    pub(crate) fn batch(&self) -> Filing<'_> {
        let Cursor { wr_ring, queue_id, next, limit } = self;
        Filing { wr_ring, slots: &wr_ring.ring, mask: wr_ring.mask, queue_id: *queue_id, next: *next, limit: *limit }
    }

    /// Reads the position of the poller.
    #[cold]
    fn look(&mut self, number: u32) -> Option<()> {
        self.limit = self.wr_ring.limit();
        (number != self.limit).then_some(())
    }
}
