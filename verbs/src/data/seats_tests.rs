//! Tests of seats.rs.

use super::*;

fn queue(seats: &Seats) -> (u32, Arc<Track>, Cursor) {
    let seat = seats.take(4).expect("a seat");
    let track = Arc::new(Track::new(seat, 4));
    seats.fill(seat, Some(Arc::clone(&track)));
    let cursor = Cursor::new(&track);
    (seat, track, cursor)
}

/// Its QP is destroyed.
fn leave(seats: &Seats, seat: u32, track: &Arc<Track>) {
    seats.leave(Gone { seat, reserved: 4, track: Arc::clone(track), pd: Weak::new() });
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

#[test]
fn a_seat_that_is_given_up_before_it_is_filled_is_free() {
    let seats = Seats::new(u32::MAX);
    let first = seats.take(4).expect("a seat");
    seats.release(first, 4);
    assert_eq!(seats.take(4).expect("a seat") & INDEX, first & INDEX);
    for _ in 0..INDEX {
        seats.take(4).expect("a seat");
    }
    assert_eq!(seats.take(4), Err(Errno::ENOMEM));
}

/// A queue that may have left completions keeps its seat and its share until the CQ was seen empty after it was gone.
#[test]
fn a_queue_is_gone_when_the_cq_is_empty_after_it() {
    let (seats, mut seating) = (Seats::new(8), Seating::default());
    let ((gone, track, mut a), (_, _, mut b)) = (queue(&seats), queue(&seats));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    leave(&seats, gone, &track);
    assert_eq!((seats.take(1), seats.room().reserved()), (Err(Errno::EOVERFLOW), 8));
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
    assert_eq!(seats.take(4).map(|seat| seat & INDEX), Ok(gone & INDEX));
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
