//! Tests of wr_ring.rs. They are in a file of their own because `tests/orders.rs` compiles wr_ring.rs with loom's
//! atomics.

use cmid_proto::datapath::WcOpcode;

use crate::accounting::kind::Kind;
use crate::accounting::retire::Retired;
use crate::accounting::sync::Arc;
use crate::accounting::wr_ring::{Cursor, WrRing};

const SEND: Kind = Kind::of(WcOpcode::SEND);

/// A send with this number has completed.
fn done(wr_id: u64) -> Retired {
    Retired::Done(wr_id, WcOpcode::SEND)
}

fn queue(capacity: u32) -> (Arc<WrRing>, Cursor) {
    let wr_ring = Arc::new(WrRing::new(7, capacity, 1));
    let cursor = Cursor::new(&wr_ring);
    (wr_ring, cursor)
}

fn post(cursor: &mut Cursor, wr_id: u64, lkey: u32) -> u64 {
    cursor.file(wr_id, &[lkey], SEND).expect("room")
}

#[test]
fn what_is_not_polled_is_counted_also_around_the_largest_number() {
    let (wr_ring, _) = queue(4);
    wr_ring.skip_to(u32::MAX - 1);
    let mut cursor = Cursor::new(&wr_ring);
    assert_eq!(wr_ring.unpolled(), 0);
    for count in 1..=3 {
        post(&mut cursor, count, 5);
        assert_eq!(u64::from(wr_ring.unpolled()), count);
    }
    assert_eq!(wr_ring.retire(7 << 32), done(3), "those before it were not signaled");
    assert_eq!(wr_ring.unpolled(), 0);
    cursor.batch().file(4, &[5], SEND).expect("room");
    assert_eq!(wr_ring.unpolled(), 0, "it is not posted yet");
}

#[test]
fn a_request_is_in_flight_until_it_is_polled_and_not_again_however_many_follow() {
    let (wr_ring, mut cursor) = queue(4);
    let (first, second) = (post(&mut cursor, 1, 5), post(&mut cursor, 2, 5));
    assert!(wr_ring.is_in_flight(first as u32) && wr_ring.is_in_flight(second as u32));
    assert_eq!(wr_ring.retire(first), done(1));
    assert!(!wr_ring.is_in_flight(first as u32) && wr_ring.is_in_flight(second as u32));
    for number in [4, 1 << 31, (1 << 31) + 8, u32::MAX] {
        wr_ring.skip_to(number);
        assert!(!wr_ring.is_in_flight(first as u32) && !wr_ring.is_in_flight(second as u32), "{number}");
    }
    let wr_ring = Arc::new(WrRing::unordered(7, 4, 1));
    let mut cursor = Cursor::new(&wr_ring);
    let (first, second) = (post(&mut cursor, 1, 5), post(&mut cursor, 2, 5));
    assert_eq!(wr_ring.retire(second), done(2));
    assert!(wr_ring.is_in_flight(first as u32) && !wr_ring.is_in_flight(second as u32));
}

#[test]
fn numbers_wrap_around() {
    let wr_ring = Arc::new(WrRing::new(7, 4, 1));
    wr_ring.skip_to(u32::MAX - 1);
    let mut cursor = Cursor::new(&wr_ring);
    for round in 0..9 {
        let token = post(&mut cursor, round, round as u32 + 1);
        assert!(wr_ring.names(round as u32 + 1));
        assert_eq!(wr_ring.retire(token), done(round));
        assert!(!wr_ring.names(round as u32 + 1));
    }
}

/// Otherwise the requests that get these numbers would count as over while the device has them.
#[test]
fn a_completion_of_a_number_that_was_not_posted_ends_nothing() {
    for (number, is_unordered) in [(0, false), (0, true), (u32::MAX, false), (u32::MAX, true)] {
        let new = if is_unordered { WrRing::unordered } else { WrRing::new };
        let wr_ring = Arc::new(new(7, 4, 1));
        wr_ring.skip_to(number);
        let mut cursor = Cursor::new(&wr_ring);
        let token = |ahead| 7 << 32 | u64::from(number.wrapping_add(ahead));
        let is_believed = |ahead| {
            let is_next = wr_ring.retire_next(token(ahead)).is_some();
            is_next || wr_ring.retire(token(ahead)) != Retired::Unexpected
        };
        cursor.batch().file(9, &[9], SEND).expect("room");
        assert_eq!((0..4).filter(|&ahead| is_believed(ahead)).count(), 0, "{number} {is_unordered}");
        let posted = [5, 6].map(|key| post(&mut cursor, u64::from(key), key));
        assert_eq!((2..4).filter(|&ahead| is_believed(ahead)).count(), 0, "{number} {is_unordered}");
        assert_eq!((wr_ring.unpolled(), wr_ring.retire(posted[1])), (2, done(6)));
        assert!(cursor.is_over(posted[1] as u32) && (is_unordered || wr_ring.is_idle()));
        assert!(!is_believed(2), "by the fast check, after the slow one has passed what was known to be posted");
    }
}

#[test]
fn the_next_completion_is_recognized_by_its_token_alone() {
    let (wr_ring, mut cursor) = queue(4);
    let tokens = [1, 2, 3].map(|wr_id| post(&mut cursor, wr_id, 5));
    assert_eq!(wr_ring.retire_next(tokens[0]), Some(1));
    assert_eq!(wr_ring.retire_next(tokens[0]), None, "a second time");
    // Ids with the same index at the CQ differ in their upper bits.
    for id in [7 + (1 << 16), 7 + (0x7fff << 16)] {
        assert_eq!(wr_ring.retire_next(tokens[1] & 0xffff_ffff | id << 32), None, "another queue");
    }
    assert_eq!(wr_ring.retire_next(tokens[2]), None, "after one that was not signaled");
    assert_eq!(wr_ring.retire(tokens[2]), done(3));
    assert_eq!(wr_ring.retire_next(tokens[1]), None, "after a later one");
    assert!(wr_ring.is_idle());
    // No token of the empty ring belongs to a queue of a CQ.
    let nothing = WrRing::nothing(0);
    for token in [0, 1, tokens[0], u64::MAX >> 1] {
        assert_eq!(nothing.retire_next(token), None);
    }
}

#[test]
fn where_the_number_wraps_around_the_slow_check_decides() {
    let wr_ring = Arc::new(WrRing::new(7, 4, 1));
    wr_ring.skip_to(u32::MAX);
    let mut cursor = Cursor::new(&wr_ring);
    let tokens = [1, 2].map(|wr_id| post(&mut cursor, wr_id, 5));
    assert_eq!(wr_ring.retire_next(tokens[0]), Some(1));
    assert_eq!(wr_ring.retire_next(tokens[1]), None);
    assert_eq!(wr_ring.retire(tokens[1]), done(2));
}
