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

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::data::pd::lock;
use crate::data::registration::Registration;

/// What one QP has in flight.
pub(crate) struct Flight {
    pub(crate) send: Arc<Track>,
    pub(crate) recv: Arc<Track>,
    /// Registrations whose [`Mr`](crate::Mr) was dropped while this QP pinned them. `None` once the QP is gone.
    ///
    /// They are kept here and not by the PD, which they keep alive themselves.
    parked: Mutex<Option<Vec<Registration>>>,
}

/// A number with a cache line of its own, so that the two who write do not disturb each other.
#[repr(align(64))]
struct Counter(AtomicU32);

/// One work queue of a QP: what has been posted, in a ring.
pub(crate) struct Track {
    seat: u32,
    ring: Box<[Slot]>,
    /// How many have been posted. Written by who posts.
    posted: Counter,
    /// How many of them have been completed and polled; work requests of one queue complete in order. Written by who polls.
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

impl Track {
    /// For a queue that holds `capacity` work requests, in a seat of its CQ.
    pub(crate) fn new(seat: u32, capacity: u32) -> Self {
        let len = capacity.clamp(1, 1 << 30).next_power_of_two();
        Track {
            seat,
            ring: core::iter::repeat_with(Slot::default).take(len as usize).collect(),
            posted: Counter(AtomicU32::new(0)),
            retired: Counter(AtomicU32::new(0)),
        }
    }

    fn len(&self) -> u32 {
        self.ring.len() as u32
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        // The length is a power of two.
        self.ring.get(number as usize & self.ring.len().wrapping_sub(1))
    }

    /// Its completion has been polled: says the user's number. `None` if there is no such work request.
    #[inline]
    pub(crate) fn retire(&self, token: u64) -> Option<u64> {
        let number = token as u32;
        let retired = self.retired.0.load(Ordering::Relaxed);
        if (token >> 32) as u32 != self.seat || number.wrapping_sub(retired) >= self.len() {
            return None;
        }
        // What was stored before the work request was handed to the device can be seen when the device has completed it:
        // the provider puts barriers on both sides, as the data itself needs them.
        let wr_id = self.slot(number)?.wr_id.load(Ordering::Relaxed);
        // Releases the slot, which has just been read, to who posts.
        self.retired.0.store(number.wrapping_add(1), Ordering::Release);
        Some(wr_id)
    }

    /// Whether a work request in flight names this key.
    fn names(&self, lkey: u32) -> bool {
        let (posted, retired) = (self.posted.0.load(Ordering::Acquire), self.retired.0.load(Ordering::Acquire));
        // A work request of another thread may have completed before that thread came to count it: less than none.
        let pending = u32::try_from(posted.wrapping_sub(retired) as i32).unwrap_or(0);
        (0..pending)
            .filter_map(|at| self.slot(retired.wrapping_add(at)))
            .any(|slot| slot.lkey.load(Ordering::Relaxed) == lkey)
    }
}

/// Where the one who posts is. It belongs to the one handle of the QP, so it needs no atomics.
pub(crate) struct Cursor {
    track: Arc<Track>,
    next: u32,
    /// As far as the ring is known to be free.
    limit: u32,
}

impl Cursor {
    pub(crate) fn new(track: &Arc<Track>) -> Self {
        Cursor { track: Arc::clone(track), next: 0, limit: track.len() }
    }

    /// Files a work request and says the token to post it with; `None` if the ring is full. Unless [`Cursor::advance`]
    /// follows, it was not posted.
    #[inline]
    pub(crate) fn file(&mut self, wr_id: u64, lkey: u32) -> Option<u64> {
        if self.next == self.limit {
            self.look()?;
        }
        let slot = self.track.slot(self.next)?;
        slot.wr_id.store(wr_id, Ordering::Relaxed);
        slot.lkey.store(lkey, Ordering::Relaxed);
        Some(u64::from(self.track.seat) << 32 | u64::from(self.next))
    }

    /// What was filed has been posted.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.track.posted.0.store(self.next, Ordering::Release);
    }

    /// How far has the one who polls come?
    #[cold]
    fn look(&mut self) -> Option<()> {
        self.limit = self.track.retired.0.load(Ordering::Acquire).wrapping_add(self.track.len());
        (self.next != self.limit).then_some(())
    }
}

impl Flight {
    pub(crate) fn new(send: Arc<Track>, recv: Arc<Track>) -> Arc<Self> {
        Arc::new(Flight { send, recv, parked: Mutex::new(Some(Vec::new())) })
    }

    /// Whether the QP is there and has work in flight that names this key.
    pub(crate) fn names(&self, lkey: u32) -> bool {
        (self.send.names(lkey) || self.recv.names(lkey)) && lock(&self.parked).is_some()
    }

    /// Keeps a registration that it names until it does no longer; gives it back if the QP has gone meanwhile.
    pub(crate) fn park(&self, registration: Registration) -> Option<Registration> {
        match lock(&self.parked).as_mut() {
            Some(parked) => {
                parked.push(registration);
                None
            }
            None => Some(registration),
        }
    }

    /// Deregisters what is parked here, and is not named any more.
    pub(crate) fn sweep(&self) {
        let parked = lock(&self.parked).as_mut().map(core::mem::take).unwrap_or_default();
        for registration in parked {
            registration.let_go();
        }
    }

    /// The QP is gone, and with it all that it had in flight.
    pub(crate) fn close(&self) {
        let parked = lock(&self.parked).take().unwrap_or_default();
        for registration in parked {
            registration.let_go();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(capacity: u32) -> (Arc<Track>, Cursor) {
        let track = Arc::new(Track::new(7, capacity));
        let cursor = Cursor::new(&track);
        (track, cursor)
    }

    fn post(cursor: &mut Cursor, wr_id: u64, lkey: u32) -> u64 {
        let token = cursor.file(wr_id, lkey).expect("room");
        cursor.advance();
        token
    }

    #[test]
    fn a_key_is_named_from_posting_to_polling() {
        let (track, mut cursor) = queue(4);
        let first = post(&mut cursor, 100, 5);
        let second = post(&mut cursor, 200, 6);
        assert!(track.names(5) && track.names(6) && !track.names(7));
        assert_eq!(track.retire(first), Some(100));
        assert!(!track.names(5) && track.names(6));
        assert_eq!(track.retire(second), Some(200));
        assert!(!track.names(6));
    }

    #[test]
    fn what_was_not_posted_is_not_in_flight() {
        let (track, mut cursor) = queue(4);
        cursor.file(1, 5).expect("room");
        assert!(!track.names(5));
        post(&mut cursor, 2, 6);
        assert!(!track.names(5) && track.names(6));
    }

    #[test]
    fn a_ring_is_full_until_something_is_polled() {
        let (track, mut cursor) = queue(3);
        let tokens: Vec<u64> = (0..4).map(|n| post(&mut cursor, n, 1)).collect();
        assert_eq!(cursor.file(4, 1), None);
        assert_eq!(track.retire(tokens[0]), Some(0));
        post(&mut cursor, 4, 9);
        assert_eq!(cursor.file(5, 1), None);
        assert!(track.names(9));
    }

    #[test]
    fn foreign_tokens_retire_nothing() {
        let (track, mut cursor) = queue(4);
        let token = post(&mut cursor, 1, 5);
        // Of another queue, and far off.
        assert_eq!(track.retire(token ^ 1 << 32), None);
        assert_eq!(track.retire(token + 4), None);
        assert!(track.names(5));
        assert_eq!(track.retire(token), Some(1));
        assert_eq!(track.retire(token), None, "a second time");
    }

    #[test]
    fn numbers_wrap_around() {
        let track = Arc::new(Track::new(7, 4));
        let start = u32::MAX - 1;
        track.posted.0.store(start, Ordering::Relaxed);
        track.retired.0.store(start, Ordering::Relaxed);
        let mut cursor = Cursor { track: Arc::clone(&track), next: start, limit: start.wrapping_add(4) };
        for round in 0..9 {
            let token = post(&mut cursor, round, round as u32 + 1);
            assert!(track.names(round as u32 + 1));
            assert_eq!(track.retire(token), Some(round));
            assert!(!track.names(round as u32 + 1));
        }
    }

    #[test]
    fn a_completion_that_is_polled_before_it_is_counted_frees_nothing_else() {
        let (track, mut cursor) = queue(4);
        let first = post(&mut cursor, 1, 5);
        let early = cursor.file(2, 6).expect("room");
        // Another thread polls both before this one comes to count the second.
        assert_eq!(track.retire(first), Some(1));
        assert_eq!(track.retire(early), Some(2));
        assert!(!track.names(5) && !track.names(6));
        cursor.advance();
        assert!(!track.names(6));
        post(&mut cursor, 3, 7);
        assert!(track.names(7));
    }

    #[test]
    fn two_threads_post_and_poll() {
        const ROUNDS: u64 = 20_000;
        let (track, mut cursor) = queue(8);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for wr_id in 0..ROUNDS {
                    let token = loop {
                        match cursor.file(wr_id, 1 + (wr_id % 2) as u32) {
                            Some(token) => break token,
                            None => std::thread::yield_now(),
                        }
                    };
                    // The completion may be polled before the post has been counted.
                    sender.send(token).expect("a receiver");
                    cursor.advance();
                }
            });
            for wr_id in 0..ROUNDS {
                let token = receiver.recv().expect("a completion");
                assert!(!track.names(3), "a key that was never posted");
                assert_eq!(track.retire(token), Some(wr_id));
            }
        });
        assert!(!track.names(1) && !track.names(2));
    }
}
