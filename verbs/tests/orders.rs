//! Tries all interleavings of threads on the ring of a work queue, with loom.
//!
//! The device, which passes a token from the poster to the poller, is an atomic that is stored with release and loaded
//! with acquire: a provider has such barriers, because the data needs them.
#![expect(dead_code, reason = "a module of the library, of which this is a part")]
#![expect(unsafe_code, reason = "that of the library's ring")]

use cmid_proto::datapath::WcOpcode;
use loom::sync::atomic::AtomicU64 as Line;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use crate::kind::Kind;
use crate::retire::Retired;
use crate::srq_slots::{SrqCursor, SrqRetired, SrqSlots};
use crate::sync::Arc;
use crate::wr_ring::{Cursor, WrRing};

#[path = "../src/accounting/kind.rs"]
mod kind;
#[path = "../src/accounting/retire.rs"]
mod retire;
#[path = "../src/accounting/srq_slots.rs"]
mod srq_slots;
#[path = "../src/accounting/wr_ring.rs"]
mod wr_ring;

/// The atomics that the library takes from `core`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::Arc;
}

const SEND: Kind = Kind::of(WcOpcode::SEND);

/// A send with this number has completed.
fn done(wr_id: u64) -> Retired {
    Retired::Done(wr_id, WcOpcode::SEND)
}

/// The key that slots have before something is posted in them.
const NEVER: u32 = 0;

/// Posts, once there is room, and hands the token to the device.
fn post(cursor: &mut Cursor, line: &Line, wr_id: u64, lkey: u32) {
    let token = loop {
        match cursor.file(wr_id, &[lkey], SEND) {
            Some(token) => break token,
            None => thread::yield_now(),
        }
    };
    line.store(token, Release);
}

fn polled(line: &Line) -> u64 {
    loop {
        match line.load(Acquire) {
            0 => thread::yield_now(),
            token => return token,
        }
    }
}

fn ring(capacity: u32) -> (Arc<WrRing>, Cursor) {
    let wr_ring = Arc::new(WrRing::new(7, capacity, 1));
    let cursor = Cursor::new(&wr_ring);
    (wr_ring, cursor)
}

#[test]
fn a_slot_is_used_again_when_its_completion_has_been_polled() {
    loom::model(|| {
        let (wr_ring, mut cursor) = ring(1);
        let lines = Arc::new([Line::new(0), Line::new(0)]);
        // Replaces the read of the slot: what the ring orders after it must come after it for each thread.
        let read = Arc::new(Line::new(0));
        let (device, seen) = (Arc::clone(&lines), Arc::clone(&read));
        let poster = thread::spawn(move || {
            post(&mut cursor, &device[0], 10, 5);
            post(&mut cursor, &device[1], 11, 6);
            assert_eq!(seen.load(Relaxed), 1, "its slot was not free");
        });
        let first = polled(&lines[0]);
        read.store(1, Relaxed);
        assert_eq!(wr_ring.retire(first), done(10));
        assert_eq!(wr_ring.retire(polled(&lines[1])), done(11));
        poster.join().expect("the poster");
        assert!(!wr_ring.names(5) && !wr_ring.names(6), "nothing is in flight");
    });
}

/// The poster takes back the block of a request that another thread has polled.
#[test]
fn a_block_comes_back_after_the_poll_of_another_thread() {
    for is_unordered in [false, true] {
        loom::model(move || {
            let new = if is_unordered { WrRing::unordered } else { WrRing::new };
            let wr_ring = Arc::new(new(7, 2, 1));
            let mut cursor = Cursor::new(&wr_ring);
            let first = cursor.file(10, &[5], SEND).expect("room");
            let second = cursor.file(11, &[6], SEND).expect("room");
            // Replaces the write of the poll to the block.
            let written = Arc::new(Line::new(0));
            let (other, write) = (Arc::clone(&wr_ring), Arc::clone(&written));
            let poller = thread::spawn(move || {
                write.store(1, Relaxed);
                // Out of order, where that is possible.
                assert_eq!(other.retire(if is_unordered { second } else { first }), done(10 + u64::from(is_unordered)));
            });
            let number = if is_unordered { second } else { first } as u32;
            if cursor.is_over(number) {
                assert_eq!(written.load(Relaxed), 1, "the owner of the block has not what the poll has written");
            }
            poller.join().expect("the poller");
            assert!(cursor.is_over(number) && !cursor.is_over(number ^ 1), "one is over");
        });
    }
}

#[test]
fn a_block_of_an_srq_comes_back_after_the_poll_of_another_thread() {
    loom::model(|| {
        let slots = Arc::new(SrqSlots::new(3, 1, 1));
        let mut cursor = SrqCursor::new(&slots);
        let token = cursor.file(10, [5]).expect("room");
        let written = Arc::new(Line::new(0));
        let (other, write) = (Arc::clone(&slots), Arc::clone(&written));
        let poller = thread::spawn(move || {
            write.store(1, Relaxed);
            assert_eq!(other.retire(token), SrqRetired::Done(10));
        });
        if slots.is_over(token) {
            assert_eq!(written.load(Relaxed), 1, "the owner of the block has not what the poll has written");
        }
        poller.join().expect("the poller");
        // Also when its slot is used again.
        assert!(slots.is_over(token));
        let again = cursor.file(11, [6]).expect("room");
        assert!(slots.is_over(token) && !slots.is_over(again));
    });
}

/// A third thread deregisters the memory of the first request while its slot is used again.
#[test]
fn a_key_that_is_not_in_flight_any_more_comes_after_the_poll() {
    loom::model(|| {
        let (wr_ring, mut cursor) = ring(1);
        let first = cursor.file(10, &[5], SEND).expect("room");
        // Replaces the write of the poll to the memory of the first request.
        let written = Arc::new(Line::new(0));
        let (other, write) = (Arc::clone(&wr_ring), Arc::clone(&written));
        let poller = thread::spawn(move || {
            write.store(1, Relaxed);
            assert_eq!(other.retire(first), done(10));
        });
        let poster = thread::spawn(move || cursor.file(11, &[6], SEND));
        let other = Arc::clone(&wr_ring);
        // The last thread; its loads may return old values, because loom does not try each order of threads.
        let owner = thread::spawn(move || {
            if !other.names(5) {
                assert_eq!(written.load(Relaxed), 1, "the memory is given back before the end of the poll");
            }
        });
        poller.join().expect("the poller");
        let posted = poster.join().expect("the poster");
        owner.join().expect("the owner");
        assert!(!wr_ring.names(5) && wr_ring.names(6) == posted.is_some());
    });
}

/// Only the ring's own numbers order the two.
#[test]
fn who_sees_that_something_is_in_flight_sees_what() {
    loom::model(|| {
        let (wr_ring, mut cursor) = ring(2);
        let watched = Arc::clone(&wr_ring);
        let poster = thread::spawn(move || {
            for (wr_id, lkey) in [(10, 5), (11, 6)] {
                cursor.file(wr_id, &[lkey], SEND).expect("room");
            }
        });
        assert!(!watched.names(NEVER), "counted, but its key is not there");
        poster.join().expect("the poster");
        assert!(watched.names(5) && watched.names(6));
    });
}

/// Two CQs report receives of one SRQ. Each slot is returned once. A thread that finds a key not in flight comes after
/// the poll.
#[test]
fn receives_of_an_srq_end_on_two_threads_while_it_is_posted_to() {
    loom::model(|| {
        let slots = Arc::new(SrqSlots::new(1, 2, 1));
        let mut cursor = SrqCursor::new(&slots);
        let tokens = [5, 6].map(|lkey| cursor.file(u64::from(lkey), [lkey]).expect("room"));
        // Replaces the write of the poll to the memory of the first request.
        let written = Arc::new(Line::new(0));
        let (other, write) = (Arc::clone(&slots), Arc::clone(&written));
        let poller = thread::spawn(move || {
            write.store(1, Relaxed);
            assert_eq!(other.retire(tokens[0]), SrqRetired::Done(5));
        });
        let (other, poster) = (Arc::clone(&slots), thread::spawn(move || (cursor.file(7, [7]), cursor)));
        assert_eq!(other.retire(tokens[1]), SrqRetired::Done(6));
        if !slots.names(5) {
            assert_eq!(written.load(Relaxed), 1, "the memory is given back before the end of the poll");
        }
        poller.join().expect("the poller");
        let (posted, mut cursor) = poster.join().expect("the poster");
        assert!(!slots.names(5) && !slots.names(6));
        // Both slots can be used, each once.
        let again = (0..2).filter_map(|_| cursor.file(8, [8])).count();
        assert_eq!((again + usize::from(posted.is_some()), slots.unpolled()), (2, 2));
    });
}

/// On iWARP a later request is polled first, and the slot of the earlier one is used again. A third thread deregisters
/// the memory of either.
#[test]
fn a_key_that_ended_out_of_order_comes_after_the_poll() {
    loom::model(|| {
        let wr_ring = Arc::new(WrRing::unordered(7, 2, 1));
        let mut cursor = Cursor::new(&wr_ring);
        let read = Kind::of(WcOpcode::RDMA_READ);
        let tokens =
            [(10, 5, read), (11, 6, SEND)].map(|(wr_id, lkey, kind)| cursor.file(wr_id, &[lkey], kind).expect("room"));
        // Replaces the writes of the polls to the memory of the two.
        let written = Arc::new([Line::new(0), Line::new(0)]);
        let (other, write) = (Arc::clone(&wr_ring), Arc::clone(&written));
        let poller = thread::spawn(move || {
            write[1].store(1, Relaxed);
            assert_eq!(other.retire(tokens[1]), done(11));
            write[0].store(1, Relaxed);
            assert_eq!(other.retire(tokens[0]), Retired::Done(10, WcOpcode::RDMA_READ));
        });
        let poster = thread::spawn(move || cursor.file(12, &[7], SEND));
        for (lkey, at) in [(6, 1), (5, 0)] {
            if !wr_ring.names(lkey) {
                assert_eq!(written[at].load(Relaxed), 1, "the memory is given back before the end of the poll");
            }
        }
        poller.join().expect("the poller");
        let posted = poster.join().expect("the poster");
        assert!(!wr_ring.names(5) && !wr_ring.names(6) && wr_ring.names(7) == posted.is_some());
    });
}

/// The provider returns an error for what it executes, and another thread polls the completion.
#[test]
fn a_completion_is_told_or_its_post_fails() {
    for is_unordered in [false, true] {
        loom::model(move || {
            let new = if is_unordered { WrRing::unordered } else { WrRing::new };
            let wr_ring = Arc::new(new(7, 2, 1));
            let mut cursor = Cursor::new(&wr_ring);
            let token = cursor.file(10, &[5], SEND).expect("room");
            let other = Arc::clone(&wr_ring);
            let poller = thread::spawn(move || other.retire(token));
            let is_posted = cursor.withdraw(1) == 0;
            let told = poller.join().expect("the poller");
            assert_eq!(told, if is_posted { done(10) } else { Retired::Silent });
        });
    }
    loom::model(|| {
        let slots = Arc::new(SrqSlots::new(3, 1, 1));
        let mut cursor = SrqCursor::new(&slots);
        let token = cursor.file(10, [5]).expect("room");
        let other = Arc::clone(&slots);
        let poller = thread::spawn(move || other.retire(token));
        let is_posted = !cursor.withdraw(token);
        let told = poller.join().expect("the poller");
        assert_eq!(told, if is_posted { SrqRetired::Done(10) } else { SrqRetired::Silent });
        assert!(slots.is_over(token) && cursor.file(11, [6]).is_some());
    });
}
