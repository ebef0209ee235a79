//! Tests of cq_slots.rs.

use super::*;
use crate::data::in_flight::InFlightSet;
use crate::data::wr_ring::Cursor;
use crate::lock::lock;

/// A queue that something is posted to.
fn queue(cq_slots: &CqSlots) -> (u32, Arc<WrRing>, Cursor) {
    cq_slots.reserve(1, 4).expect("room");
    let queue_id = cq_slots.assign();
    let wr_ring = Arc::new(WrRing::new(queue_id, 4, 1));
    cq_slots.set_ring(queue_id, &wr_ring);
    let cursor = Cursor::new(&wr_ring);
    (queue_id, wr_ring, cursor)
}

/// Its QP is destroyed.
fn leave(cq_slots: &CqSlots, queue_id: u32, wr_ring: &Arc<WrRing>) {
    let place = InFlightSet::new().enlist(wr_ring);
    cq_slots.leave(Gone { queue_id, capacity: 4, wr_ring: Arc::clone(wr_ring), place, pd: Weak::new() });
}

fn post(cursor: &mut Cursor, wr_id: u64) -> Completion {
    let token = cursor.file(0, wr_id, &[1]).expect("room");
    cursor.advance(1);
    Completion { wr_id: token, ..Completion::default() }
}

fn numbers(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.wr_id).collect()
}

#[test]
fn completions_find_their_queue() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let ((_, _, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    let mut mixed = [post(&mut a, 10), post(&mut b, 20), post(&mut b, 21), post(&mut a, 11)];
    assert_eq!(slot_cache.retire(&cq_slots, &mut mixed, 0), 4);
    assert_eq!(numbers(&mixed), [10, 20, 21, 11]);
}

#[test]
fn what_a_queue_left_behind_is_dropped_even_if_its_index_is_used_again() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let ((gone, first, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [left], 0), 1);
    leave(&cq_slots, gone, &first);
    let (queue_id, wr_ring, mut next) = queue(&cq_slots);
    assert_eq!(queue_id & INDEX, gone & INDEX, "nothing of it was left");
    let mut mixed = [left, post(&mut next, 30), left, other];
    assert_eq!(slot_cache.retire(&cq_slots, &mut mixed, 0), 2);
    assert_eq!(numbers(&mixed[..2]), [30, 20]);
    assert_eq!(Arc::strong_count(&wr_ring), 4, "slots, cache, cursor, here");
}

#[test]
fn a_completion_that_cannot_be_differs_from_one_of_a_gone_queue() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let ((gone, wr_ring, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    let (left, first, second) = (post(&mut a, 10), post(&mut b, 20), post(&mut b, 21));
    leave(&cq_slots, gone, &wr_ring);
    assert_eq!(slot_cache.retire(&cq_slots, &mut [left], 0), 0);
    assert!(!slot_cache.take_doubt(), "its queue is gone");
    // Out of order: what comes along is kept.
    let mut mixed = [second, first, post(&mut b, 22)];
    assert_eq!(slot_cache.retire(&cq_slots, &mut mixed, 0), 2);
    assert_eq!(numbers(&mixed[..2]), [21, 22]);
    assert!(slot_cache.take_doubt());
    assert!(!slot_cache.take_doubt(), "reported once");
}

#[test]
fn looking_costs_what_has_changed() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let queues: Vec<_> = (0..100).map(|_| queue(&cq_slots)).collect();
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    let (queue_id, wr_ring, _) = &queues[7];
    let (queue_id, mut wr_ring) = (*queue_id, Arc::clone(wr_ring));
    // Several changes of an entry are one, with or without a poll.
    for _ in 0..10 {
        leave(&cq_slots, queue_id, &wr_ring);
        let next = queue(&cq_slots);
        assert_eq!(next.0 & INDEX, queue_id & INDEX);
        wr_ring = next.1;
    }
    assert_eq!(lock(&cq_slots.state).changed, [(queue_id & INDEX) as usize]);
    let (_, _, mut cursor) = queue(&cq_slots);
    assert_eq!(slot_cache.retire(&cq_slots, &mut [post(&mut cursor, 1)], 0), 1);
    assert!(lock(&cq_slots.state).changed.is_empty());
    assert_eq!(slot_cache.rings.len(), 101);
}

/// Of a queue that nothing is posted to there is a reservation, and nothing that a poll would read.
#[test]
fn a_queue_that_nothing_is_posted_to_has_no_id() {
    let cq_slots = CqSlots::new(8);
    for _ in 0..100 {
        cq_slots.reserve(1, 4).expect("room");
        assert_eq!(cq_slots.room().reserved(), 4);
        cq_slots.cancel(1, 4);
    }
    assert_eq!((cq_slots.room().reserved(), cq_slots.version.load(Ordering::Relaxed)), (0, 0));
    let state = lock(&cq_slots.state);
    assert_eq!((state.entries.len(), state.assigned, state.queues), (0, 0, 0));
}

#[test]
fn there_is_an_id_for_each_reservation_and_no_more() {
    let cq_slots = CqSlots::new(u32::MAX);
    for _ in 0..=INDEX {
        cq_slots.reserve(1, 4).expect("a reservation");
    }
    let taken = 4 * (INDEX + 1);
    assert_eq!((cq_slots.reserve(1, 4), cq_slots.room().reserved()), (Err(Errno::ENOMEM), taken));
    cq_slots.cancel(1, 4);
    assert_eq!((cq_slots.reserve(2, 4), cq_slots.room().reserved()), (Err(Errno::ENOMEM), taken - 4));
    assert_eq!((cq_slots.reserve(1, 4), cq_slots.room().reserved()), (Ok(()), taken));
    cq_slots.cancel(2, 8);
    assert_eq!((cq_slots.reserve(2, 8), cq_slots.room().reserved()), (Ok(()), taken));
    let last = (0..=INDEX).map(|_| cq_slots.assign() & INDEX).last();
    assert_eq!(last, Some(INDEX));
}

/// A queue that may have left completions keeps its id and its share until the CQ was seen empty after it was gone.
#[test]
fn a_queue_is_gone_when_the_cq_is_empty_after_it() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let ((gone, wr_ring, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    leave(&cq_slots, gone, &wr_ring);
    assert_eq!((cq_slots.reserve(1, 1), cq_slots.room().reserved()), (Err(Errno::EOVERFLOW), 8));
    // A poll has found it, with what another queue has completed.
    assert_eq!(slot_cache.retire(&cq_slots, &mut [other, left], 0), 1);
    assert_eq!(Arc::strong_count(&wr_ring), 3, "going, cursor, here");
    // It may have been destroyed during this poll.
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(!slot_cache.refresh(&cq_slots));
    assert_eq!(cq_slots.room().reserved(), 8);
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(slot_cache.refresh(&cq_slots));
    assert_eq!((cq_slots.room().reserved(), Arc::strong_count(&wr_ring)), (4, 2));
    assert_eq!((cq_slots.reserve(1, 4), cq_slots.assign() & INDEX), (Ok(()), gone & INDEX));
}

#[test]
fn a_queue_is_gone_when_the_handle_of_the_cq_is_dropped() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let mut queues: Vec<_> = (0..4).map(|_| queue(&cq_slots)).collect();
    for (_, _, cursor) in &mut queues {
        post(cursor, 1);
    }
    for (at, (queue_id, wr_ring, _)) in queues.iter().enumerate() {
        match at {
            0 | 1 => {
                leave(&cq_slots, *queue_id, wr_ring);
                assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
                let _ = at == 0 || slot_cache.refresh(&cq_slots);
            }
            2 => leave(&cq_slots, *queue_id, wr_ring),
            _ => {
                slot_cache.close(&cq_slots);
                leave(&cq_slots, *queue_id, wr_ring);
            }
        }
    }
    assert_eq!(cq_slots.room().reserved(), 0);
}
