//! Which work queues report to a completion queue, and taking their completions to account.
//!
//! Each queue has a seat: the upper half of the tokens that its work requests carry (flight.rs). Its lower 16 bits are an
//! index, its upper ones say how often the seat was taken before, so that completions that a QP left behind are not taken
//! for the next one's.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cmid_proto::Errno;

use crate::data::Completion;
use crate::data::cq::CqInner;
use crate::data::flight::Track;
use crate::data::pd::lock;

/// Bits of a seat that are an index.
const INDEX_BITS: u32 = 16;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

/// Who sits where at one CQ.
#[derive(Default)]
pub(crate) struct Seats {
    plan: Mutex<Plan>,
    /// Counts how often the plan has changed, so that who polls looks only then.
    version: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    tracks: Vec<Option<Arc<Track>>>,
    /// Indices that were given and are free again. Others without a track are of queues that are being made.
    free: Vec<usize>,
    /// How many seats have been given.
    given: u16,
}

/// The copy of the one who polls.
#[derive(Default)]
pub(crate) struct Seating {
    tracks: Vec<Option<Arc<Track>>>,
    version: usize,
}

/// A seat that a work queue has, and the CQ along with it. Dropping it gives the seat up.
pub(crate) struct Seat {
    cq: Arc<CqInner>,
    number: u32,
}

impl Seat {
    /// # Errors
    /// `ENOMEM` if all are taken.
    pub(crate) fn take(cq: &Arc<CqInner>) -> Result<Self, Errno> {
        let number = cq.seats().take()?;
        Ok(Seat { cq: Arc::clone(cq), number })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn cq(&self) -> &CqInner {
        &self.cq
    }

    /// From now on its completions are looked for.
    pub(crate) fn fill(&self, track: &Arc<Track>) {
        self.cq.seats().fill(self.number, Some(Arc::clone(track)));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.cq.seats().leave(self.number);
    }
}

impl Seats {
    fn take(&self) -> Result<u32, Errno> {
        let mut plan = lock(&self.plan);
        let index = match plan.free.pop() {
            Some(free) => free,
            None if plan.tracks.len() > INDEX as usize => return Err(Errno::ENOMEM),
            None => {
                plan.tracks.push(None);
                plan.tracks.len() - 1
            }
        };
        plan.given = plan.given.wrapping_add(1);
        Ok(u32::from(plan.given) << INDEX_BITS | index as u32)
    }

    fn fill(&self, seat: u32, track: Option<Arc<Track>>) {
        let mut plan = lock(&self.plan);
        if let Some(place) = plan.tracks.get_mut((seat & INDEX) as usize) {
            *place = track;
        }
        // With the lock still held.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Once for each seat that was taken.
    fn leave(&self, seat: u32) {
        self.fill(seat, None);
        lock(&self.plan).free.push((seat & INDEX) as usize);
    }
}

impl Seating {
    /// Takes completions to account, puts the users' numbers into them, and drops those that are of nobody any more: says
    /// how many are left.
    #[inline]
    pub(crate) fn retire(&mut self, seats: &Seats, completions: &mut [Completion]) -> usize {
        if self.version != seats.version.load(Ordering::Acquire) {
            self.look(seats);
        }
        let mut kept = 0;
        for at in 0..completions.len() {
            let Some(&completion) = completions.get(at) else { break };
            if let Some(wr_id) = self.find(seats, completion.wr_id)
                && let Some(place) = completions.get_mut(kept)
            {
                if kept != at {
                    *place = completion;
                }
                place.wr_id = wr_id;
                kept += 1;
            }
        }
        kept
    }

    #[inline]
    fn find(&mut self, seats: &Seats, token: u64) -> Option<u64> {
        self.retired(token).or_else(|| self.find_again(seats, token))
    }

    #[inline]
    fn retired(&self, token: u64) -> Option<u64> {
        let index = (token >> 32) as u32 & INDEX;
        self.tracks.get(index as usize)?.as_ref()?.retire(token)
    }

    /// The queue may be so new that its seat was not seen.
    #[cold]
    fn find_again(&mut self, seats: &Seats, token: u64) -> Option<u64> {
        self.look(seats);
        self.retired(token)
    }

    #[cold]
    fn look(&mut self, seats: &Seats) {
        let plan = lock(&seats.plan);
        self.tracks.clone_from(&plan.tracks);
        self.version = seats.version.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::flight::Cursor;

    fn queue(seats: &Seats) -> (u32, Arc<Track>, Cursor) {
        let seat = seats.take().expect("a seat");
        let track = Arc::new(Track::new(seat, 4));
        seats.fill(seat, Some(Arc::clone(&track)));
        let cursor = Cursor::new(&track);
        (seat, track, cursor)
    }

    fn post(cursor: &mut Cursor, wr_id: u64) -> Completion {
        let token = cursor.file(wr_id, 1).expect("room");
        cursor.advance();
        let mut completion = Completion::default();
        completion.wr_id = token;
        completion
    }

    fn numbers(completions: &[Completion]) -> Vec<u64> {
        completions.iter().map(|completion| completion.wr_id).collect()
    }

    #[test]
    fn completions_find_their_queue() {
        let (seats, mut seating) = (Seats::default(), Seating::default());
        let ((_, _, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
        let mut mixed = [post(&mut a, 10), post(&mut b, 20), post(&mut b, 21), post(&mut a, 11)];
        assert_eq!(seating.retire(&seats, &mut mixed), 4);
        assert_eq!(numbers(&mixed), [10, 20, 21, 11]);
    }

    #[test]
    fn what_a_queue_left_behind_is_dropped_even_if_its_seat_is_taken_again() {
        let (seats, mut seating) = (Seats::default(), Seating::default());
        let ((gone, _, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
        let (left, other) = (post(&mut a, 10), post(&mut b, 20));
        seats.leave(gone);
        let (_, track, mut next) = queue(&seats);
        let mut mixed = [left, post(&mut next, 30), left, other];
        assert_eq!(seating.retire(&seats, &mut mixed), 2);
        assert_eq!(numbers(&mixed[..2]), [30, 20]);
        assert_eq!(Arc::strong_count(&track), 4, "seats, seating, cursor, here");
    }

    #[test]
    fn a_seat_that_is_given_up_before_it_is_filled_is_free() {
        let seats = Seats::default();
        let first = seats.take().expect("a seat");
        seats.leave(first);
        assert_eq!(seats.take().expect("a seat") & INDEX, first & INDEX);
        for _ in 0..INDEX {
            seats.take().expect("a seat");
        }
        assert_eq!(seats.take(), Err(Errno::ENOMEM));
    }
}
