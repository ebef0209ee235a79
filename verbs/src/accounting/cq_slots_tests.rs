//! Tests of cq_slots.rs.

use cmid_proto::datapath::{Caps, Completion, WcOpcode};

use super::*;
use crate::accounting::in_flight::{InFlightSet, NoPd, PdWork};
use crate::accounting::kind::Kind;
use crate::accounting::poll::Provider;
use crate::accounting::slot_cache::SlotCache;
use crate::accounting::srq_slots::SrqCursor;
use crate::accounting::work_queue::Reservation;
use crate::accounting::wr_ring::Cursor;

/// A queue that something is posted to.
fn queue(cq_slots: &CqSlots) -> (u32, Arc<WrRing>, Cursor) {
    cq_slots.reserve(4).expect("room");
    let queue_id = cq_slots.assign();
    let wr_ring = Arc::new(WrRing::new(queue_id, 4, 1));
    cq_slots.set_ring(queue_id, &wr_ring);
    let cursor = Cursor::new(&wr_ring);
    (queue_id, wr_ring, cursor)
}

/// Its QP is destroyed.
fn leave(cq_slots: &CqSlots, queue_id: u32, wr_ring: &Arc<WrRing>) {
    let place = InFlightSet::new().enlist(wr_ring);
    let (wr_ring, pd) = (Arc::clone(wr_ring), Weak::<NoPd>::new());
    drop(cq_slots.leave(GoneQueue { queue_id, capacity: 4, wr_ring, place, pd, owned: None }));
}

fn post(cursor: &mut Cursor, wr_id: u64) -> Completion {
    let token = cursor.file(wr_id, &[1], Kind::of(WcOpcode::SEND)).expect("room");
    Completion { wr_id: token, ..Completion::default() }
}

fn numbers(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.wr_id).collect()
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
    assert_eq!(cq_slots.state.lock().changed, [(queue_id & INDEX) as usize]);
    let (_, _, mut cursor) = queue(&cq_slots);
    assert_eq!(slot_cache.retire(&cq_slots, &mut [post(&mut cursor, 1)], 0), 1);
    assert!(cq_slots.state.lock().changed.is_empty());
    assert_eq!(slot_cache.rings.len(), 128);
}

/// A queue without posts has only a reservation. A poll reads nothing for it.
#[test]
fn a_queue_that_nothing_is_posted_to_has_no_id() {
    let cq_slots = CqSlots::new(8);
    for _ in 0..100 {
        cq_slots.reserve(4).expect("room");
        assert_eq!(cq_slots.room().reserved(), 4);
        cq_slots.cancel(4);
    }
    assert_eq!((cq_slots.room().reserved(), cq_slots.version.load(Ordering::Relaxed)), (0, 0));
    let state = cq_slots.state.lock();
    assert_eq!((state.entries.len(), state.assigned, state.queues), (0, 0, 0));
}

#[test]
fn there_is_an_id_for_each_reservation_and_no_more() {
    let cq_slots = CqSlots::new(u32::MAX);
    for _ in 0..INDEX {
        cq_slots.reserve(4).expect("a reservation");
    }
    let taken = 4 * INDEX;
    assert_eq!((cq_slots.reserve(4), cq_slots.room().reserved()), (Err(Errno::ENOMEM), taken));
    cq_slots.cancel(4);
    assert_eq!((cq_slots.reserve(4), cq_slots.room().reserved()), (Ok(()), taken));
    let last = (0..INDEX).map(|_| cq_slots.assign() & INDEX).last();
    assert_eq!(last, Some(INDEX - 1), "the last index is that of SRQs");
}

/// A queue that may have left completions keeps its id and its share until the CQ was seen empty after it was gone.
/// The application's own posts to a QP have the other half of the numbers (raw.rs).
#[test]
fn tokens_stay_below_2_to_the_63_however_many_queues_there_were() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let mut indices = Vec::new();
    for _ in 0..3 {
        // As after nearly as many ids as the count can tell apart.
        cq_slots.state.lock().assigned = ASSIGNED - 1;
        for _ in 0..3 {
            let (queue_id, _, mut cursor) = queue(&cq_slots);
            let completion = post(&mut cursor, 10);
            assert!(completion.wr_id < 1 << 63, "{queue_id:#x}");
            let own = Completion { wr_id: completion.wr_id | 1 << 63, ..completion };
            assert_eq!(slot_cache.retire(&cq_slots, &mut [own], 0), 0, "the application's is dropped");
            assert_eq!(slot_cache.retire(&cq_slots, &mut [completion], 0), 1);
            indices.push(queue_id & INDEX);
        }
    }
    assert_eq!(indices, Vec::from_iter(0..9));
}

/// Also where each completion is looked at, on iWARP and after a refused post, and where there is no queue.
#[test]
fn no_number_of_the_applications_own_posts_is_the_next_one_of_a_queue() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let none_is_next = |slot_cache: &SlotCache| {
        let known = slot_cache.known();
        for next in (0..4).map(|place| known.ring(place << 32).retired.number.load(Ordering::Relaxed)) {
            for own in [next, next ^ 1 << 32, next + 1].map(|number| number | 1 << 63) {
                assert_eq!(known.retire_next(own), None, "{own:#x}");
            }
        }
    };
    none_is_next(&slot_cache);
    let (_, _ordered, mut cursor) = queue(&cq_slots);
    post(&mut cursor, 10);
    let (withdrawn, wr_ring, mut cursor) = queue(&cq_slots);
    post(&mut cursor, 20);
    cursor.file(21, &[1], Kind::of(WcOpcode::SEND)).expect("room");
    cursor.withdraw(1);
    cq_slots.set_ring(withdrawn, &wr_ring);
    cq_slots.reserve(4).expect("room");
    let queue_id = cq_slots.assign();
    let unordered = Arc::new(WrRing::unordered(queue_id, 4, 1));
    cq_slots.set_ring(queue_id, &unordered);
    let token = post(&mut Cursor::new(&unordered), 30);
    slot_cache.look(&cq_slots);
    none_is_next(&slot_cache);
    assert!(unordered.names(1) && wr_ring.names(1));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [token], 0), 1);
}

#[test]
fn a_queue_is_gone_when_the_cq_is_empty_after_it() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let ((gone, wr_ring, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    leave(&cq_slots, gone, &wr_ring);
    assert_eq!((cq_slots.reserve(1), cq_slots.room().reserved()), (Err(Errno::EOVERFLOW), 8));
    // A poll has returned it, with a completion of another queue.
    assert_eq!(slot_cache.retire(&cq_slots, &mut [other, left], 0), 1);
    assert_eq!(Arc::strong_count(&wr_ring), 3, "going, cursor, here");
    // It may have been destroyed during this poll.
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(!slot_cache.refresh(&cq_slots));
    assert_eq!(cq_slots.room().reserved(), 8);
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(slot_cache.refresh(&cq_slots));
    assert_eq!((cq_slots.room().reserved(), Arc::strong_count(&wr_ring)), (4, 2));
    assert_eq!((cq_slots.reserve(4), cq_slots.assign() & INDEX), (Ok(()), gone & INDEX));
}

#[test]
fn a_cq_is_idle_when_nothing_is_in_flight_and_no_queue_may_have_left_completions() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(u32::MAX), SlotCache::default());
    let ((gone, wr_ring, mut a), (_, _, mut b)) = (queue(&cq_slots), queue(&cq_slots));
    assert!(slot_cache.is_idle(&cq_slots));
    let (left, other) = (post(&mut a, 10), post(&mut b, 20));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [left], 0), 1);
    assert!(!slot_cache.is_idle(&cq_slots));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [other], 0), 1);
    assert!(slot_cache.is_idle(&cq_slots));
    post(&mut a, 11);
    leave(&cq_slots, gone, &wr_ring);
    // As above: after the poll that takes it over, and the one after it.
    for _ in 0..2 {
        assert!(!slot_cache.is_idle(&cq_slots));
        assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
        slot_cache.refresh(&cq_slots);
    }
    assert!(slot_cache.is_idle(&cq_slots));
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

/// An SRQ of 4 receives in a PD of its own.
fn srq() -> (Arc<SrqTable>, SrqCursor) {
    let table = Arc::new(SrqTable::for_test(4));
    let cursor = SrqCursor::new(table.slots());
    (table, cursor)
}

fn receive(cursor: &mut SrqCursor, wr_id: u64) -> Completion {
    Completion { wr_id: cursor.file(wr_id, [1]).expect("room"), ..Completion::default() }
}

#[test]
fn receives_of_an_srq_complete_in_any_order_and_in_any_of_its_cqs() {
    let cqs = [CqSlots::new(12), CqSlots::new(8)];
    let [mut one, mut other] = [SlotCache::default(), SlotCache::default()];
    let ((first, mut a), (second, mut b)) = (srq(), srq());
    for cq_slots in &cqs {
        cq_slots.attach_srq(&first).expect("room");
        cq_slots.attach_srq(&second).expect("room");
    }
    let (_, _, mut of_qp) = queue(&cqs[0]);
    let [x, y, z] = [1, 2, 3].map(|wr_id| receive(&mut a, wr_id));
    let mut mixed = [z, receive(&mut b, 10), post(&mut of_qp, 20), x];
    assert_eq!(one.retire(&cqs[0], &mut mixed, 0), 4);
    assert_eq!(numbers(&mixed), [3, 10, 20, 1]);
    let mut rest = [y];
    assert_eq!((other.retire(&cqs[1], &mut rest, 0), numbers(&rest)), (1, vec![2]));
    assert_eq!((first.slots().unpolled(), second.slots().unpolled()), (0, 0));
    // A second completion of a receive is reported. A completion of an SRQ that the CQ does not know is dropped.
    assert_eq!((other.retire(&cqs[1], &mut [y], 0), other.take_doubt()), (0, true));
    let (_third, mut c) = srq();
    assert_eq!((other.retire(&cqs[1], &mut [receive(&mut c, 1)], 0), other.take_doubt()), (0, false));
}

/// An SRQ keeps its share as long as one of its QPs can have completions in the CQ. Its work stays in flight as long as
/// the share or the SRQ exists.
#[test]
fn an_srq_has_one_share_until_its_last_qp_has_left_nothing() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(7), SlotCache::default());
    let (table, mut cursor) = srq();
    for _ in 0..3 {
        cq_slots.attach_srq(&table).expect("room");
    }
    assert_eq!((cq_slots.room().reserved(), cq_slots.attach_srq(&srq().0)), (4, Err(Errno::EOVERFLOW)));
    // Nothing is in flight, so the QP has left no completions.
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    assert_eq!((Arc::strong_count(&table), cq_slots.awaits_srq()), (1, false));
    let left = receive(&mut cursor, 1);
    assert_eq!((slot_cache.is_idle(&cq_slots), cq_slots.awaits_srq()), (true, true), "a wait does not end");
    // A QP that could not be created has left nothing, whatever is in flight.
    cq_slots.attach_srq(&table).expect("room");
    assert!(cq_slots.leave_srq(Arc::clone(&table), 0).is_some() && slot_cache.is_idle(&cq_slots));
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    // The SRQ is destroyed, and the memory of its receive is still pinned.
    let (alive, slots) = (Arc::downgrade(&table), Arc::clone(table.slots()));
    drop(table);
    assert_eq!((cq_slots.room().reserved(), alive.strong_count(), slots.names(1)), (4, 2, true));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [left], 0), 1, "it is returned");
    assert!(!slot_cache.refresh(&cq_slots), "it may have been destroyed during this poll");
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(slot_cache.refresh(&cq_slots));
    assert_eq!((cq_slots.room().reserved(), alive.strong_count(), slots.unpolled()), (0, 0, 0));
}

/// Its record is as long as there are ids.
#[test]
fn a_cq_that_is_never_empty_has_a_limited_number_of_destroyed_qps_with_an_srq() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let (table, mut cursor) = srq();
    let left = receive(&mut cursor, 1);
    for qp_num in 1..=INDEX {
        cq_slots.attach_srq(&table).expect("room");
        assert!(cq_slots.leave_srq(Arc::clone(&table), qp_num).is_none());
    }
    assert_eq!(cq_slots.attach_srq(&table), Err(Errno::ENOMEM));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [left], 0), 1);
    assert!(!slot_cache.refresh(&cq_slots));
    assert_eq!(slot_cache.retire(&cq_slots, &mut [], 0), 0);
    assert!(slot_cache.refresh(&cq_slots));
    assert_eq!(cq_slots.attach_srq(&table), Ok(()));
}

/// A receive that one of them has left may be taken for one of the other.
#[test]
fn the_number_of_a_destroyed_qp_with_an_srq_is_known_until_it_has_left_nothing() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let ((table, mut cursor), other) = (srq(), srq().0);
    for table in [&table, &table, &table, &other] {
        cq_slots.attach_srq(table).expect("room");
    }
    receive(&mut cursor, 1);
    let has_left = || [17, 18].map(|qp_num| [&table, &other].map(|table| cq_slots.has_left(table, qp_num)));
    for qp_num in [17, 18] {
        cq_slots.leaves(&table, qp_num);
    }
    assert_eq!(has_left(), [[true, false]; 2], "before the destruction");
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    for (is_over, of_first) in [(false, true), (true, false)] {
        slot_cache.look(&cq_slots);
        assert_eq!(slot_cache.refresh(&cq_slots), is_over);
        assert_eq!(has_left(), [[of_first, false], [true, false]]);
    }
}

#[test]
fn a_cq_whose_handle_is_dropped_keeps_no_srq() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let (table, mut cursor) = srq();
    receive(&mut cursor, 1);
    for _ in 0..2 {
        cq_slots.attach_srq(&table).expect("room");
    }
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    slot_cache.close(&cq_slots);
    drop(cq_slots.leave_srq(Arc::clone(&table), 17));
    assert_eq!((Arc::strong_count(&table), cq_slots.room().reserved()), (1, 0));
}

/// A PD, of which the test is the only user.
struct OnePd(InFlightSet);

impl PdWork for OnePd {
    fn in_flight(&self) -> &InFlightSet {
        &self.0
    }

    fn released(&self) {}
}

/// What the memory of a program may do when it is freed.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("as the owner of a buffer may");
    }
}

fn panics(makes: impl FnOnce()) -> bool {
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(makes)).is_err()
}

#[test]
fn a_panic_of_what_a_queue_owns_leaves_no_pins_and_no_reservations() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let pd = Arc::new(OnePd(InFlightSet::new()));
    for _ in 0..2 {
        let (queue_id, wr_ring, mut cursor) = queue(&cq_slots);
        post(&mut cursor, 10);
        let place = pd.0.enlist(&wr_ring);
        let (pd, owned): (Weak<dyn PdWork>, _) = (Arc::<OnePd>::downgrade(&pd), Some(Box::new(Panics) as _));
        drop(cq_slots.leave(GoneQueue { queue_id, capacity: 4, wr_ring, place, pd, owned }));
    }
    assert!(pd.0.name(1));
    slot_cache.look(&cq_slots);
    // The CQ is found empty, again and again.
    let panics = (0..4).filter(|_| panics(|| _ = slot_cache.refresh(&cq_slots)));
    assert_eq!(panics.count(), 2, "one of each queue");
    assert!(!pd.0.name(1) && slot_cache.none_gone());
    assert_eq!(cq_slots.reserve(8), Ok(()), "all of its depth is free");
}

#[test]
fn a_panic_of_what_a_queue_owns_when_its_cq_is_dropped_leaves_no_pins_of_others() {
    let (cq_slots, mut slot_cache) = (CqSlots::new(8), SlotCache::default());
    let pd = Arc::new(OnePd(InFlightSet::new()));
    let owned: [Box<dyn Send + Sync>; 2] = [Box::new(Panics), Box::new(())];
    for owned in owned {
        let (queue_id, wr_ring, mut cursor) = queue(&cq_slots);
        post(&mut cursor, 10);
        let (place, pd): (_, Weak<dyn PdWork>) = (pd.0.enlist(&wr_ring), Arc::<OnePd>::downgrade(&pd));
        drop(cq_slots.leave(GoneQueue { queue_id, capacity: 4, wr_ring, place, pd, owned: Some(owned) }));
    }
    assert!(panics(|| slot_cache.close(&cq_slots)));
    assert!(!pd.0.name(1));
}

/// A CQ of one test.
struct OneCq(CqSlots);

impl Provider for OneCq {
    fn cq_slots(&self) -> &CqSlots {
        &self.0
    }

    fn poll(&self, _completions: &mut [Completion]) -> core::ffi::c_int {
        0
    }
}

/// The provider may write to the memory of the receives when the CQ is polled.
#[test]
fn a_panic_of_what_sends_own_does_not_end_the_receives_that_may_be_left() {
    let (cq, mut slot_cache) = (Arc::new(OneCq(CqSlots::new(8))), SlotCache::default());
    let pd = Arc::new(OnePd(InFlightSet::new()));
    let caps = Caps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let mut queues = Reservation::make([&cq, &cq], &caps).expect("room").into_queues();
    let [mut sends, mut recvs] = [pd.0.without_ring(), pd.0.without_ring()];
    queues.open_send(&mut sends, &pd, false);
    queues.open_recv(&mut recvs, &pd);
    assert_eq!(slot_cache.retire(&cq.0, &mut [post(&mut sends, 10)], 0), 1, "nothing is left of the sends");
    post(&mut recvs, 20);
    let memory = Arc::new(());
    let owned: [Box<dyn Send + Sync>; 2] = [Box::new(Panics), Box::new(Arc::clone(&memory))];
    assert!(panics(|| drop(queues.close(&pd, Some(owned)))));
    assert_eq!((pd.0.name(1), Arc::strong_count(&memory)), (true, 2), "a receive may be left");
    for _ in 0..2 {
        slot_cache.look(&cq.0);
        slot_cache.refresh(&cq.0);
    }
    assert_eq!((pd.0.name(1), Arc::strong_count(&memory), cq.0.room().reserved()), (false, 1, 0));
}
