//! Tests of srq_slots.rs.

use std::sync::Arc;

use super::srq_slots::{MAX_CAPACITY, SrqCursor, SrqRetired, SrqSlots, srq_of};

fn srq(capacity: u32, max_sge: u32) -> (Arc<SrqSlots>, SrqCursor) {
    let slots = Arc::new(SrqSlots::new(0xfedc, capacity, max_sge));
    let cursor = SrqCursor::new(&slots);
    (slots, cursor)
}

fn named(slots: &SrqSlots) -> Vec<u32> {
    (1..=9).filter(|&lkey| slots.names(lkey)).collect()
}

#[test]
fn receives_end_in_any_order_and_each_pins_until_its_own_end() {
    let (slots, mut cursor) = srq(3, 1);
    let [a, b, c] = [1, 2, 3].map(|lkey| cursor.file(u64::from(lkey) * 10, [lkey]).expect("room"));
    assert_eq!((cursor.file(0, [9]), cursor.room(), slots.unpolled()), (None, 0, 3));
    assert_eq!(slots.retire(b), SrqRetired::Done(20));
    assert_eq!(named(&slots), [1, 3]);
    let d = cursor.file(40, [4]).expect("the slot of the second");
    assert_eq!((slots.retire(c), slots.retire(d)), (SrqRetired::Done(30), SrqRetired::Done(40)));
    assert_eq!((named(&slots), slots.unpolled(), cursor.room()), (vec![1], 1, 2));
    assert_eq!(slots.retire(a), SrqRetired::Done(10));
    assert_eq!((named(&slots), slots.unpolled()), (vec![], 0));
}

#[test]
fn a_second_completion_retires_nothing() {
    let (slots, mut cursor) = srq(1, 1);
    let first = cursor.file(10, [1]).expect("room");
    assert_eq!(slots.retire(first), SrqRetired::Done(10));
    assert_eq!(slots.retire(first), SrqRetired::Unexpected);
    // Also if its slot is in use again, and for slots that do not exist.
    let second = cursor.file(11, [2]).expect("room");
    assert_ne!(first, second);
    assert_eq!((slots.retire(first), slots.retire(first | 0xff)), (SrqRetired::Unexpected, SrqRetired::Unexpected));
    assert_eq!((named(&slots), cursor.file(12, [3])), (vec![2], None));
}

#[test]
fn slots_are_used_again_for_ever() {
    let (slots, mut cursor) = srq(3, 1);
    // The number of uses wraps around, both its 30 bits in a token and its own 32 bits.
    for uses in [0, (1 << 30) - 4, u32::MAX - 3] {
        slots.skip_to(uses);
        for round in 0..10_u64 {
            let [a, b, c] = [0, 1, 2].map(|at| cursor.file(10 * round + at, [7]).expect("room"));
            for (token, at) in [(c, 2), (a, 0), (b, 1)] {
                assert_eq!(slots.retire(token), SrqRetired::Done(10 * round + at));
                assert_eq!(slots.retire(token), SrqRetired::Unexpected);
            }
        }
        assert!(!slots.names(7));
    }
}

#[test]
fn each_range_pins_and_none_is_left_of_an_earlier_receive() {
    let (slots, mut cursor) = srq(1, 3);
    let token = cursor.file(1, [1, 2, 3]).expect("room");
    assert_eq!(named(&slots), [1, 2, 3]);
    assert!(matches!(slots.retire(token), SrqRetired::Done(_)));
    assert_eq!((named(&slots), cursor.room()), (vec![], 1));
    cursor.file(2, [4]).expect("room");
    assert_eq!(named(&slots), [4]);
}

#[test]
fn a_token_names_its_srq_and_is_that_of_no_queue() {
    let (slots, mut cursor) = srq(4, 1);
    let token = cursor.file(1, []).expect("room");
    assert_eq!((srq_of(token), slots.srq_id(), slots.capacity()), (Some(0xfedc), 0xfedc, 4));
    assert_eq!(srq_of(0xfedc_fffe_0000_0000), None);
    let (slots, mut cursor) = srq(MAX_CAPACITY, 1);
    let last = (0..MAX_CAPACITY).map(|at| cursor.file(u64::from(at), [1])).last().flatten().expect("room");
    assert_eq!(slots.retire(last), SrqRetired::Done(u64::from(MAX_CAPACITY) - 1));
}

#[test]
fn a_receive_that_is_withdrawn_ends_unseen_and_one_that_is_told_is_not_withdrawn() {
    let (slots, mut cursor) = srq(1, 1);
    for _ in 0..3 {
        let token = cursor.file(10, [1]).expect("room");
        assert!(cursor.withdraw(token));
        assert_eq!((slots.is_over(token), named(&slots), cursor.file(11, [2])), (false, vec![1], None));
        assert_eq!((slots.retire_next(token), slots.retire(token)), (None, SrqRetired::Silent));
        assert_eq!((slots.retire(token), slots.is_over(token)), (SrqRetired::Unexpected, true));
        let token = cursor.file(12, [3]).expect("room");
        assert_eq!((slots.retire(token), cursor.withdraw(token)), (SrqRetired::Done(12), false));
        assert_eq!((slots.unpolled(), slots.is_over(token)), (0, true));
        // A second completion, while the next receive has the number that a withdrawal would have given.
        let next = cursor.file(13, [4]).expect("room");
        assert_eq!((slots.retire(token), slots.is_over(token)), (SrqRetired::Unexpected, true));
        assert_eq!(slots.retire(next), SrqRetired::Done(13));
    }
}
