//! A ring of the work requests of one work queue that were posted and not polled.
//!
//! in_flight.rs describes its purpose and its cost. `tests/orders.rs` compiles this file with loom's atomics in place
//! of `sync`, and tries the interleavings of two threads.

use core::iter::repeat_with;

use super::kind::{DONE, Kind, LOOK};
use super::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};

/// A number on a cache line of its own, because poster and poller write different numbers. Padding replaces an
/// alignment, which would make the allocation three times as expensive.
#[repr(C)]
pub(super) struct Counter {
    _before: [u32; 15],
    pub(super) number: AtomicU64,
    _after: [u32; 15],
}

impl Counter {
    fn new(number: u64) -> Self {
        Counter { _before: [0; 15], number: AtomicU64::new(number), _after: [0; 15] }
    }
}

/// The work requests of one work queue of a QP, in a ring.
pub(crate) struct WrRing {
    /// The id of the queue at its CQ.
    pub(super) queue_id: u32,
    /// The maximum number of work requests without a polled completion.
    capacity: u32,
    /// The `wr_id` of the user in each slot. The number of slots is a power of two.
    wr_ids: Box<[AtomicU64]>,
    /// The keys of each slot. The lower half is the key of the first range; [`NO_KEY`] if it is empty or inline, or if
    /// there is none. The next 16 bits are the number of keys in `more_keys`, the upper 16 bits the [`Kind`].
    keys: Box<[AtomicU64]>,
    /// The number of slots minus 1.
    pub(super) mask: u64,
    /// Room for the keys of the second and later ranges of each slot: as many per slot as `more`.
    more_keys: Box<[AtomicU32]>,
    more: usize,
    /// The token of the next post. The poster writes it, before a request goes to the provider: so no completion is of a
    /// later one. After the largest number the upper half is wrong until the next post.
    pub(super) posted: Counter,
    /// The token after that of the last work request that is not in flight, and all before it are not. The poller
    /// writes it. The upper half is wrong after the largest number, and with [`LOOK`].
    pub(super) retired: Counter,
    /// What the poller has last read of `posted`, on whose line the poster writes.
    known: AtomicU64,
    /// Whether the completions of the queue come in any order that iWARP permits; see retire.rs.
    pub(super) is_unordered: bool,
    /// The number after the largest one that was retired out of order. Only the poller uses it.
    pub(super) reached: AtomicU32,
    /// The number after the last withdrawn request, and a bit; 0 without one.
    pub(super) withdrawn: AtomicU64,
}

/// The key of "no memory". A registration with this key can appear to be pinned.
pub(crate) const NO_KEY: u32 = 0;

/// The id of the ring of queues that have none, at even places among the rings.
const NO_QUEUE: u32 = u32::MAX;

impl WrRing {
    /// Creates the ring of a queue that holds `capacity` work requests of at most `max_sge` ranges, with its id at its
    /// CQ.
    pub(crate) fn new(queue_id: u32, capacity: u32, max_sge: u32) -> Self {
        let capacity = capacity.min(1 << 30);
        let len = capacity.max(1).next_power_of_two() as usize;
        let more = max_sge.saturating_sub(1) as usize;
        let first = u64::from(queue_id) << 32;
        WrRing {
            queue_id,
            capacity,
            mask: len as u64 - 1,
            wr_ids: repeat_with(AtomicU64::default).take(len).collect(),
            keys: repeat_with(AtomicU64::default).take(len).collect(),
            more_keys: repeat_with(AtomicU32::default).take(len.saturating_mul(more)).collect(),
            more,
            posted: Counter::new(first),
            retired: Counter::new(first),
            known: AtomicU64::new(first),
            is_unordered: false,
            reached: AtomicU32::new(0),
            withdrawn: AtomicU64::new(0),
        }
    }

    /// As [`WrRing::new`], for a queue whose completions come in any order that iWARP permits.
    pub(crate) fn unordered(queue_id: u32, capacity: u32, max_sge: u32) -> Self {
        let ring = WrRing::new(queue_id, capacity, max_sge);
        ring.retired.number.store(ring.token(0) ^ LOOK, Ordering::Relaxed);
        WrRing { is_unordered: true, ..ring }
    }

    /// Creates the ring of queues that have none, for places of this parity among the rings. It is both full and empty, and
    /// no completion is its next one: see [`LOOK`].
    pub(crate) fn nothing(parity: u32) -> Arc<Self> {
        Arc::new(WrRing::new(NO_QUEUE ^ parity, 0, 0))
    }

    /// Sets the positions as after `number` work requests.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, number: u32) {
        self.posted.number.store(self.token(number), Ordering::Relaxed);
        let look = if self.is_unordered { LOOK } else { 0 };
        self.retired.number.store(self.token(number) ^ look, Ordering::Relaxed);
        self.reached.store(number, Ordering::Relaxed);
        self.learn();
    }

    pub(super) fn token(&self, number: u32) -> u64 {
        u64::from(self.queue_id) << 32 | u64::from(number)
    }

    /// The slot of a work request.
    pub(super) fn slot(&self, token: u64) -> [&AtomicU64; 2] {
        let at = (token & self.mask) as usize;
        // SAFETY: `number & mask` is at most `mask`, which is the number of slots minus 1 (`new`). Neither changes.
        unsafe { [self.wr_ids.get_unchecked(at), self.keys.get_unchecked(at)] }
    }

    /// The room for the keys of the second and later ranges of a slot.
    fn more_keys(&self, token: u64) -> &[AtomicU32] {
        let start = (token & self.mask) as usize * self.more;
        self.more_keys.get(start..start + self.more).unwrap_or_default()
    }

    /// Stores a work request with at most one range in its slot.
    fn store(&self, token: u64, wr_id: u64, lkey: u32, kind: Kind) {
        let [wr_id_slot, key_slot] = self.slot(token);
        wr_id_slot.store(wr_id, Ordering::Relaxed);
        key_slot.store(u64::from(lkey) | kind.0, Ordering::Relaxed);
    }

    /// Stores the keys of the second and later ranges of a work request, whose first one is `lkey`.
    fn store_more(&self, token: u64, lkey: u32, more: &[u32], kind: Kind) {
        let room = self.more_keys(token);
        room.iter().zip(more).for_each(|(key, &lkey)| key.store(lkey, Ordering::Relaxed));
        let [_, key_slot] = self.slot(token);
        key_slot.store(kind.0 | (more.len() as u64 & 0xffff) << 32 | u64::from(lkey), Ordering::Relaxed);
    }

    /// Counts the next work request, which is stored: it is in flight from now on.
    fn count(&self, token: u64) {
        self.posted.number.store(token + 1, Ordering::Release);
    }

    /// Returns the next token with a correct upper half, and the token up to which the queue has room, at most to the
    /// next change of the upper half. Reads the position of the poller.
    #[cold]
    fn room(&self, next: u64) -> (u64, u64) {
        let (number, retired) = (next as u32, self.retired.number.load(Ordering::Acquire));
        let in_flight = number.wrapping_sub(retired as u32);
        // For `names`: a load that sees a key stored after this is ordered after those polls.
        fence(Ordering::Release);
        let room = u64::from(self.capacity.saturating_sub(in_flight)).min((1 << 32) - u64::from(number));
        (self.token(number), self.token(number) + room)
    }

    /// Retires the work request of a polled completion, if it is the next one of the queue, and returns the user's
    /// `wr_id`.
    pub(crate) fn retire_next(&self, token: u64) -> Option<u64> {
        let is_next = token == self.retired.number.load(Ordering::Relaxed);
        if !is_next || token == self.known.load(Ordering::Relaxed) && token == self.learn() {
            return None;
        }
        // Stores before the post are visible after the completion: the provider has barriers on both sides, because the
        // data needs them.
        let [wr_id, _] = self.slot(token);
        let wr_id = wr_id.load(Ordering::Relaxed);
        // Release: the slot has been read, and the poster may write it.
        self.retired.number.store(token + 1, Ordering::Release);
        Some(wr_id)
    }

    /// Reads the token of the next post. Called by the poller before it retires what it does not know to be posted.
    pub(super) fn learn(&self) -> u64 {
        let posted = self.posted.number.load(Ordering::Relaxed);
        self.known.store(posted, Ordering::Relaxed);
        posted
    }

    /// Whether nothing is in flight. Called after the last post.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.number.load(Ordering::Acquire) as u32 == self.retired.number.load(Ordering::Acquire) as u32
    }

    /// Whether the request of this number, which was posted, is no longer in flight. Acquires what its poll has written.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        let retired = self.retired.number.load(Ordering::Acquire) as u32;
        if (number.wrapping_sub(retired) as i32) < 0 {
            return true;
        }
        let [_, keys] = self.slot(u64::from(number));
        self.is_unordered && Kind(keys.load(Ordering::Acquire)).has(DONE)
    }

    /// Whether the request of this number, which was posted at any time before, is in flight. Acquires what its poll has written.
    pub(crate) fn is_in_flight(&self, number: u32) -> bool {
        // In this order: the request is not counted later than it is retired.
        let [retired, posted] =
            [&self.retired, &self.posted].map(|counter| counter.number.load(Ordering::Acquire) as u32);
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        number.wrapping_sub(retired) < pending && !self.is_over(number)
    }

    /// The number of work requests in flight. A poll or a post of another thread may change it meanwhile.
    pub(crate) fn unpolled(&self) -> u32 {
        let [posted, retired] =
            [&self.posted, &self.retired].map(|counter| counter.number.load(Ordering::Acquire) as u32);
        // As in `names`.
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        if !self.is_unordered {
            return pending;
        }
        let is_over = |number: &u64| {
            let [_, keys] = self.slot(*number);
            Kind(keys.load(Ordering::Relaxed)).has(DONE)
        };
        let over = (0..pending).map(|at| u64::from(retired.wrapping_add(at))).filter(is_over).count();
        pending.saturating_sub(over as u32)
    }

    /// Whether a work request in flight names this key.
    pub(crate) fn names(&self, lkey: u32) -> bool {
        let [posted, retired] =
            [&self.posted, &self.retired].map(|counter| counter.number.load(Ordering::Acquire) as u32);
        // Negative if a request was posted and polled between the two loads.
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        let names = (0..pending).map(|at| u64::from(retired.wrapping_add(at))).any(|number| {
            let [_, keys] = self.slot(number);
            let keys = keys.load(Ordering::Relaxed);
            let more = self.more_keys(number).iter().take((keys >> 32 & 0xffff) as usize);
            keys as u32 == lkey || more.into_iter().any(|key| key.load(Ordering::Relaxed) == lkey)
        });
        // The key may be of a later request in the same slot. With the fence of `room`, the poll of the earlier request
        // is ordered before all that follows here, such as a reuse of its memory.
        fence(Ordering::Acquire);
        names
    }
}

/// The work requests of a batch, none of which is in flight. A copy of the poster's position, which stays in registers.
pub(crate) struct Filing<'a> {
    wr_ring: &'a WrRing,
    next: u64,
    limit: u64,
}

impl Filing<'_> {
    /// The number of the next request.
    pub(crate) fn number(&self) -> u32 {
        self.next as u32
    }

    /// As [`Cursor::file`], after those that were filed before.
    pub(crate) fn file(&mut self, wr_id: u64, lkeys: &[u32], kind: Kind) -> Option<u64> {
        let (&lkey, more) = lkeys.split_first().unwrap_or((&NO_KEY, &[]));
        let token = self.file_one(wr_id, lkey, kind)?;
        self.wr_ring.store_more(token, lkey, more, kind);
        Some(token)
    }

    /// The same for one range.
    #[inline(always)]
    pub(crate) fn file_one(&mut self, wr_id: u64, lkey: u32, kind: Kind) -> Option<u64> {
        if self.next == self.limit {
            (self.next, self.limit) = self.wr_ring.room(self.next);
            if self.next == self.limit {
                return None;
            }
        }
        let token = self.next;
        self.wr_ring.store(token, wr_id, lkey, kind);
        self.next = token + 1;
        Some(token)
    }
}

/// The position of the poster. It belongs to the one handle of the QP.
pub(crate) struct Cursor {
    pub(super) wr_ring: Arc<WrRing>,
    /// The token up to which the queue is known to have room.
    limit: u64,
}

impl Cursor {
    pub(crate) fn new(wr_ring: &Arc<WrRing>) -> Self {
        // The first post looks.
        Cursor { wr_ring: Arc::clone(wr_ring), limit: wr_ring.posted.number.load(Ordering::Relaxed) }
    }

    /// Stores the next work request. `lkeys` are the keys of its ranges, at most `max_sge`. Returns the token to post
    /// it with; `None` if the queue is full. It is in flight then. If the provider refuses it, [`Cursor::withdraw`] follows.
    pub(crate) fn file(&mut self, wr_id: u64, lkeys: &[u32], kind: Kind) -> Option<u64> {
        let (&lkey, more) = lkeys.split_first().unwrap_or((&NO_KEY, &[]));
        let next = self.next();
        let token = if self.has_room_at(next) { next } else { self.look_for_room(next)? };
        if more.is_empty() {
            self.file_at(token, wr_id, lkey, kind);
        } else {
            self.wr_ring.store(token, wr_id, lkey, kind);
            self.wr_ring.store_more(token, lkey, more, kind);
            self.wr_ring.count(token);
        }
        Some(token)
    }

    /// The token of the next post.
    pub(crate) fn next(&self) -> u64 {
        self.wr_ring.posted.number.load(Ordering::Relaxed)
    }

    /// Whether the posted request of this number is no longer in flight.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        self.wr_ring.is_over(number)
    }

    /// Whether the queue is known to have room at the token of the next post.
    pub(crate) fn has_room_at(&self, next: u64) -> bool {
        next < self.limit
    }

    /// Files a work request with at most one range under the token of the next post, where there is room.
    pub(crate) fn file_at(&mut self, token: u64, wr_id: u64, lkey: u32, kind: Kind) {
        self.wr_ring.store(token, wr_id, lkey, kind);
        self.wr_ring.count(token);
    }

    /// Called before the post of a batch: its `count` requests are in flight from now on.
    pub(crate) fn advance_by(&mut self, count: u32) {
        let posted = &self.wr_ring.posted.number;
        let before = posted.load(Ordering::Relaxed);
        let after = self.wr_ring.token((before as u32).wrapping_add(count));
        // The next post looks: the room that was known may lie behind the largest number.
        posted.store(after, Ordering::Release);
        self.limit = after;
    }

    /// Whether the queue has no ring yet.
    pub(crate) fn is_without_ring(&self) -> bool {
        self.wr_ring.capacity == 0
    }

    /// Files a batch. [`Cursor::advance_by`] follows before the post.
    pub(crate) fn batch(&self) -> Filing<'_> {
        let next = self.wr_ring.posted.number.load(Ordering::Relaxed);
        Filing { wr_ring: &self.wr_ring, next, limit: self.limit }
    }

    /// Called where the queue is not known to have room: reads the position of the poller. Returns the token of the next
    /// post; `None` if the queue is full.
    #[cold]
    pub(crate) fn look_for_room(&mut self, next: u64) -> Option<u64> {
        let (token, limit) = self.wr_ring.room(next);
        self.limit = limit;
        if token != next {
            self.wr_ring.posted.number.store(token, Ordering::Release);
        }
        (token != limit).then_some(token)
    }
}
