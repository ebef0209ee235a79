//! Tests of seats.rs.

use super::*;
use crate::data::flight::Flights;
use crate::data::track::Cursor;

/// A queue that something is posted to.
fn queue(seats: &Seats) -> (u32, Arc<Track>, Cursor) {
    seats.reserve(1, 4).expect("room");
    let seat = seats.take();
    let track = Arc::new(Track::new(seat, 4));
    seats.fill(seat, &track);
    let cursor = Cursor::new(&track);
    (seat, track, cursor)
}

/// Its QP is destroyed.
fn leave(seats: &Seats, seat: u32, track: &Arc<Track>) {
    let place = Flights::new().enlist(track);
    seats.leave(Gone { seat, capacity: 4, track: Arc::clone(track), place, pd: Weak::new() });
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
    let (seats, mut seating) = (Seats::new(u32::MAX), Seating::default());
    let ((_, _, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
    let mut mixed = [post(&mut a, 10), post(&mut b, 20), post(&mut b, 21), post(&mut a, 11)];
    assert_eq!(seating.retire(&seats, &mut mixed), 4);
    assert_eq!(numbers(&mixed), [10, 20, 21, 11]);
}

#[test]
fn what_a_queue_left_behind_is_dropped_even_if_its_seat_is_taken_again() {
    let (seats, mut seating) = (Seats::new(u32::MAX), Seating::default());
    let ((gone, first, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    assert_eq!(seating.retire(&seats, &mut [left]), 1);
    leave(&seats, gone, &first);
    let (seat, track, mut next) = queue(&seats);
    assert_eq!(seat & INDEX, gone & INDEX, "nothing of it was left");
    let mut mixed = [left, post(&mut next, 30), left, other];
    assert_eq!(seating.retire(&seats, &mut mixed), 2);
    assert_eq!(numbers(&mixed[..2]), [30, 20]);
    assert_eq!(Arc::strong_count(&track), 4, "seats, seating, cursor, here");
}

#[test]
fn a_completion_that_cannot_be_is_told_from_one_of_nobody() {
    let (seats, mut seating) = (Seats::new(u32::MAX), Seating::default());
    let ((gone, track, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
    let (left, first, second) = (post(&mut a, 10), post(&mut b, 20), post(&mut b, 21));
    leave(&seats, gone, &track);
    assert_eq!(seating.retire(&seats, &mut [left]), 0);
    assert!(!seating.take_doubt(), "its queue is gone");
    // Out of order: what comes along is kept.
    let mut mixed = [second, first, post(&mut b, 22)];
    assert_eq!(seating.retire(&seats, &mut mixed), 2);
    assert_eq!(numbers(&mixed[..2]), [21, 22]);
    assert!(seating.take_doubt());
    assert!(!seating.take_doubt(), "told once");
}

#[test]
fn looking_costs_what_has_changed() {
    let (seats, mut seating) = (Seats::new(u32::MAX), Seating::default());
    let queues: Vec<_> = (0..100).map(|_| queue(&seats)).collect();
    assert_eq!(seating.retire(&seats, &mut []), 0);
    let (seat, track, _) = &queues[7];
    let (seat, mut track) = (*seat, Arc::clone(track));
    // Several changes of a seat are one, whether anybody polls or not.
    for _ in 0..10 {
        leave(&seats, seat, &track);
        let next = queue(&seats);
        assert_eq!(next.0 & INDEX, seat & INDEX);
        track = next.1;
    }
    assert_eq!(lock(&seats.plan).changed, [(seat & INDEX) as usize]);
    let (_, _, mut cursor) = queue(&seats);
    assert_eq!(seating.retire(&seats, &mut [post(&mut cursor, 1)]), 1);
    assert!(lock(&seats.plan).changed.is_empty());
    assert_eq!(seating.tracks.len(), 101);
}

/// Of a queue that nothing is posted to there is a reservation, and nothing that who polls would have to look at.
#[test]
fn a_queue_that_nothing_is_posted_to_has_no_seat() {
    let seats = Seats::new(8);
    for _ in 0..100 {
        seats.reserve(1, 4).expect("room");
        assert_eq!(seats.room().reserved(), 4);
        seats.cancel(1, 4);
    }
    assert_eq!((seats.room().reserved(), seats.version.load(Ordering::Relaxed)), (0, 0));
    let plan = lock(&seats.plan);
    assert_eq!((plan.chairs.len(), plan.given, plan.queues), (0, 0, 0));
}

#[test]
fn there_is_a_seat_for_each_reservation_and_no_more() {
    let seats = Seats::new(u32::MAX);
    for _ in 0..=INDEX {
        seats.reserve(1, 4).expect("a reservation");
    }
    let taken = 4 * (INDEX + 1);
    assert_eq!((seats.reserve(1, 4), seats.room().reserved()), (Err(Errno::ENOMEM), taken));
    seats.cancel(1, 4);
    assert_eq!((seats.reserve(2, 4), seats.room().reserved()), (Err(Errno::ENOMEM), taken - 4));
    assert_eq!((seats.reserve(1, 4), seats.room().reserved()), (Ok(()), taken));
    seats.cancel(2, 8);
    assert_eq!((seats.reserve(2, 8), seats.room().reserved()), (Ok(()), taken));
    let last = (0..=INDEX).map(|_| seats.take() & INDEX).last();
    assert_eq!(last, Some(INDEX));
}

/// A queue that may have left completions keeps its seat and its share until the CQ was seen empty after it was gone.
#[test]
fn a_queue_is_gone_when_the_cq_is_empty_after_it() {
    let (seats, mut seating) = (Seats::new(8), Seating::default());
    let ((gone, track, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    leave(&seats, gone, &track);
    assert_eq!((seats.reserve(1, 1), seats.room().reserved()), (Err(Errno::EOVERFLOW), 8));
    // A poll has found it, with what another queue has completed.
    assert_eq!(seating.retire(&seats, &mut [other, left]), 1);
    assert_eq!(Arc::strong_count(&track), 3, "going, cursor, here");
    // It may have been destroyed during this poll.
    assert_eq!(seating.retire(&seats, &mut []), 0);
    assert!(!seating.settle(&seats));
    assert_eq!(seats.room().reserved(), 8);
    assert_eq!(seating.retire(&seats, &mut []), 0);
    assert!(seating.settle(&seats));
    assert_eq!((seats.room().reserved(), Arc::strong_count(&track)), (4, 2));
    assert_eq!((seats.reserve(1, 4), seats.take() & INDEX), (Ok(()), gone & INDEX));
}

#[test]
fn a_queue_is_gone_when_nobody_polls_any_more() {
    let (seats, mut seating) = (Seats::new(u32::MAX), Seating::default());
    let mut queues: Vec<_> = (0..4).map(|_| queue(&seats)).collect();
    for (_, _, cursor) in &mut queues {
        post(cursor, 1);
    }
    for (at, (seat, track, _)) in queues.iter().enumerate() {
        match at {
            0 | 1 => {
                leave(&seats, *seat, track);
                assert_eq!(seating.retire(&seats, &mut []), 0);
                let _ = at == 0 || seating.settle(&seats);
            }
            2 => leave(&seats, *seat, track),
            _ => {
                seating.close(&seats);
                leave(&seats, *seat, track);
            }
        }
    }
    assert_eq!(seats.room().reserved(), 0);
}
