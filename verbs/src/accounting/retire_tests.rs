//! Tests of retire.rs: queues whose completions come out of order, and withdrawn requests.

use cmid_proto::datapath::{SendFlags, WcOpcode};

use crate::accounting::kind::Kind;
use crate::accounting::retire::Retired;
use crate::accounting::sync::Arc;
use crate::accounting::wr_ring::{Cursor, WrRing};

const WRITE: Kind = Kind::of(WcOpcode::RDMA_WRITE);
const READ: Kind = Kind::of(WcOpcode::RDMA_READ);
const QUIET: SendFlags = SendFlags::empty();

/// The queue of sends of a QP on iWARP.
fn unordered(capacity: u32) -> (Arc<WrRing>, Cursor) {
    let wr_ring = Arc::new(WrRing::unordered(7, capacity, 2));
    let cursor = Cursor::new(&wr_ring);
    (wr_ring, cursor)
}

/// Posts a request. Its number is its key.
fn post(cursor: &mut Cursor, key: u32, kind: Kind) -> u64 {
    cursor.file(u64::from(key), &[key], kind).expect("room")
}

fn named(wr_ring: &WrRing) -> Vec<u32> {
    (1..=9).filter(|&key| wr_ring.names(key)).collect()
}

#[test]
fn a_request_on_iwarp_ends_with_its_own_completion_only() {
    for flags in [QUIET, SendFlags::SIGNALED, QUIET | SendFlags::FENCE] {
        let (wr_ring, mut cursor) = unordered(8);
        let [first, second] = [(1, READ), (2, WRITE)].map(|(key, kind)| post(&mut cursor, key, kind.with(flags)));
        let expected = |key, opcode| {
            if flags.contains(SendFlags::SIGNALED) {
                Retired::Done(key, opcode)
            } else {
                Retired::Unsignaled(key, opcode)
            }
        };
        assert_eq!(wr_ring.retire(second), expected(2, WcOpcode::RDMA_WRITE));
        assert_eq!((named(&wr_ring), wr_ring.unpolled()), (vec![1], 1));
        assert_eq!(wr_ring.retire(first), expected(1, WcOpcode::RDMA_READ));
        assert_eq!((named(&wr_ring), wr_ring.unpolled()), (vec![], 0));
    }
}

/// Slots are used again in order. What they had before does not count.
#[test]
fn an_unordered_queue_is_full_until_its_oldest_request_ends() {
    let (wr_ring, mut cursor) = unordered(2);
    for number in [0, u32::MAX - 2] {
        wr_ring.skip_to(number);
        let mut cursor = Cursor::new(&wr_ring);
        for round in 0..5 {
            let read = post(&mut cursor, 1, READ);
            let write = post(&mut cursor, 2, WRITE);
            assert!(matches!(wr_ring.retire(write), Retired::Done(2, _)), "round {round}");
            assert_eq!(cursor.file(3, &[3], WRITE), None, "the read is in flight");
            assert!(matches!(wr_ring.retire(read), Retired::Done(1, _)));
        }
        assert!(named(&wr_ring).is_empty());
    }
    assert!(cursor.file(3, &[3, 4], WRITE).is_some());
}

#[test]
fn a_request_that_the_provider_refuses_stays_in_flight_until_a_completion_passes_it() {
    for is_unordered in [false, true] {
        let new = if is_unordered { WrRing::unordered } else { WrRing::new };
        let wr_ring = Arc::new(new(7, 4, 1));
        let mut cursor = Cursor::new(&wr_ring);
        let refused = cursor.file(1, &[1], WRITE).expect("room");
        cursor.withdraw(1);
        wr_ring.heed_withdrawn();
        assert_eq!(named(&wr_ring), [1]);
        let next = post(&mut cursor, 2, WRITE);
        assert_ne!(next, refused, "its token is its own");
        // It is executed after all. The application has been told otherwise.
        assert_eq!(wr_ring.retire_next(refused), None);
        assert_eq!(wr_ring.retire(refused), Retired::Silent);
        assert_eq!(named(&wr_ring), [2]);
        assert!(matches!(wr_ring.retire(next), Retired::Done(2, _)));
        // Or it is not: in a queue in order a later one ends it. On iWARP nothing is posted behind it.
        if !is_unordered {
            cursor.file(3, &[3], WRITE).expect("room");
            cursor.withdraw(1);
            wr_ring.heed_withdrawn();
            let later = post(&mut cursor, 4, WRITE);
            assert!(matches!(wr_ring.retire(later), Retired::Done(4, _)));
        }
        assert!(wr_ring.is_idle());
        // The fast path is back.
        let last = post(&mut cursor, 5, WRITE);
        assert_eq!(wr_ring.retire_next(last).is_some(), !is_unordered);
    }
}

/// Another thread polls while the provider is about to return its error.
#[test]
fn what_is_told_before_the_post_has_failed_is_posted_with_all_before_it() {
    for (is_unordered, told) in [(false, 0), (false, 1), (false, 3), (true, 1), (true, 3)] {
        let new = if is_unordered { WrRing::unordered } else { WrRing::new };
        let wr_ring = Arc::new(new(7, 4, 1));
        let mut cursor = Cursor::new(&wr_ring);
        let tokens = [1, 2, 3].map(|key| post(&mut cursor, key, WRITE));
        let is_done =
            |token| wr_ring.retire_next(token).is_some() || matches!(wr_ring.retire(token), Retired::Done(..));
        assert!(tokens[..told].iter().all(|token| is_done(*token)));
        assert_eq!(cursor.withdraw(3), 3 - told as u32, "{is_unordered} {told}");
        wr_ring.heed_withdrawn();
        assert!(tokens[told..].iter().all(|token| wr_ring.retire(*token) == Retired::Silent));
        assert!(wr_ring.is_idle());
    }
    // The last one is polled: those before it are posted too.
    let (wr_ring, mut cursor) = unordered(4);
    let [_, last] = [1, 2].map(|key| post(&mut cursor, key, WRITE.with(QUIET)));
    assert!(matches!(wr_ring.retire(last), Retired::Unsignaled(2, _)));
    assert_eq!(cursor.withdraw(2), 0);
}
