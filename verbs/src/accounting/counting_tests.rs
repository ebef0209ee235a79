//! Tests of counting mode (wr_count.rs, counted.rs) against a model that has each work request.

use std::collections::VecDeque;

use cmid_proto::datapath::Completion;

use super::*;
use crate::accounting::in_flight::{InFlightSet, NoPd};
use crate::accounting::slot_cache::SlotCache;
use crate::accounting::wr_count::Snapshot;
use crate::accounting::wr_ring::{Cursor, RECEIVE, RecvCursor, SendCursor};

/// A work queue, and the model of its work requests in flight.
struct Queue {
    key: CountedKey,
    queue_id: u32,
    wr_ring: Arc<WrRing>,
    cursor: Poster,
    place: InFlightIndex,
    /// The keys of the work requests in flight, and whether the device has completed them, in order.
    in_flight: VecDeque<(u32, bool)>,
    is_gone: bool,
}

enum Poster {
    Send(SendCursor),
    Recv(RecvCursor),
}

impl Poster {
    fn post(&mut self, lkey: u32) -> bool {
        fn post<const TAG: u64>(cursor: &mut Cursor<TAG>, lkey: u32) -> bool {
            let is_posted = cursor.file(7, &[lkey], true).is_some();
            is_posted.then(|| cursor.advance()).is_some()
        }
        match self {
            Poster::Send(cursor) => post(cursor, lkey),
            Poster::Recv(cursor) => post(cursor, lkey),
        }
    }
}

struct World {
    cq_slots: CqSlots,
    slot_cache: SlotCache,
    in_flight: InFlightSet,
    queues: Vec<Queue>,
    /// The completions in the CQ.
    completions: VecDeque<Completion>,
}

impl World {
    fn new() -> Self {
        let cq_slots = CqSlots::counting(u32::MAX);
        let slot_cache = SlotCache::new(&cq_slots);
        let (queues, completions) = (Vec::new(), VecDeque::new());
        World { cq_slots, slot_cache, in_flight: InFlightSet::new(), queues, completions }
    }

    /// Opens a queue. Returns false if an earlier queue with its key may have left completions.
    fn open(&mut self, qp_num: u32, is_recv: bool) -> bool {
        let (key, wr_ring) = (CountedKey { qp_num, is_recv }, Arc::new(WrRing::counting(4)));
        self.cq_slots.reserve(1, 4).expect("room");
        let queue_id = self.cq_slots.assign();
        if !self.cq_slots.set_counting(key, &wr_ring) {
            self.cq_slots.unassign(queue_id);
            self.cq_slots.cancel(1, 4);
            return false;
        }
        let cursor = if is_recv { Poster::Recv(Cursor::new(&wr_ring)) } else { Poster::Send(Cursor::new(&wr_ring)) };
        let place = self.in_flight.enlist(&wr_ring);
        self.queues.push(Queue { key, queue_id, wr_ring, cursor, place, in_flight: VecDeque::new(), is_gone: false });
        true
    }

    fn post(&mut self, at: usize, lkey: u32) -> bool {
        let queue = &mut self.queues[at];
        let is_posted = !queue.is_gone && queue.cursor.post(lkey);
        if is_posted {
            queue.in_flight.push_back((lkey, false));
        }
        is_posted
    }

    /// The device completes the oldest work request of a queue.
    fn complete(&mut self, at: usize) {
        let Queue { key, in_flight, is_gone, .. } = &mut self.queues[at];
        if let Some((_, is_complete)) = in_flight.iter_mut().find(|(_, is_complete)| !*is_complete && !*is_gone) {
            *is_complete = true;
            let wr_id = 7 | if key.is_recv { RECEIVE } else { 0 };
            self.completions.push_back(Completion { wr_id, qp_num: key.qp_num, ..Completion::default() });
        }
    }

    fn destroy(&mut self, at: usize) {
        let Queue { key, queue_id, wr_ring, place, is_gone, .. } = &mut self.queues[at];
        if !core::mem::replace(is_gone, true) {
            let (counted, wr_ring) = (Some(*key), Arc::clone(wr_ring));
            let gone = GoneQueue {
                queue_id: *queue_id,
                counted,
                capacity: 4,
                wr_ring,
                place: *place,
                pd: Weak::<NoPd>::new(),
            };
            self.cq_slots.leave(gone);
            self.end_released();
        }
    }

    /// Polls as `Cq::poll` does, and removes the polled work requests from the model.
    fn poll(&mut self) {
        let polled: Vec<_> = self.completions.drain(..self.completions.len().min(2)).collect();
        let mut completions = polled.clone();
        let left = self.slot_cache.retire(&self.cq_slots, &mut completions, 0);
        assert!(completions[..left].iter().all(|completion| completion.wr_id == 7), "the user's number");
        if polled.is_empty() {
            self.slot_cache.refresh(&self.cq_slots);
        }
        for completion in polled {
            let is_of = |queue: &&mut Queue| {
                queue.key.qp_num == completion.qp_num && queue.key.is_recv == (completion.wr_id >= RECEIVE)
            };
            // The first one: a later queue with its key is opened when no completion of the first one is left.
            if let Some(queue) = self.queues.iter_mut().find(is_of) {
                queue.in_flight.pop_front();
            }
        }
        self.end_released();
    }

    /// As `Gone::end`: ends destroyed queues that can have no completion in the CQ.
    fn end_released(&mut self) {
        let state = self.cq_slots.state.lock();
        let World { queues, in_flight, completions, .. } = self;
        queues.retain(|queue| {
            let is_over = queue.is_gone && !state.counted.contains_key(&queue.key);
            if is_over {
                let is_of = |wr_id| queue.key.is_recv == (wr_id >= RECEIVE);
                let is_left = |one: &Completion| one.qp_num == queue.key.qp_num && is_of(one.wr_id);
                assert!(!completions.iter().any(is_left), "a completion is left");
                in_flight.remove(queue.place);
            }
            !is_over
        });
    }

    fn names(&self, lkey: u32) -> bool {
        self.queues.iter().any(|queue| queue.in_flight.iter().any(|(key, _)| *key == lkey))
    }
}

/// Numbers of a linear congruential generator, below `below`.
fn random(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

/// Random posts, completions, polls, destructions and deregistrations. Memory that the count reports as free is not in
/// flight in the model. Everything ends when the CQ is polled empty.
#[test]
fn memory_is_never_pinned_shorter_than_its_work_requests_are_in_flight() {
    let mut waited = 0;
    for first in 0..400 {
        let (mut world, mut seed, mut next_key) = (World::new(), first, 1);
        // Memory that is being deregistered.
        let mut ending: Vec<(u32, Option<Vec<Snapshot>>)> = Vec::new();
        for _ in 0..200 {
            let count = world.queues.len();
            match random(&mut seed, 10) {
                0 => drop(world.open(random(&mut seed, 3) as u32, random(&mut seed, 2) == 0)),
                1..4 if count > 0 => drop(world.post(random(&mut seed, count), next_key)),
                4..6 if count > 0 => world.complete(random(&mut seed, count)),
                6 if count > 0 && random(&mut seed, 4) == 0 => world.destroy(random(&mut seed, count)),
                7 => {
                    ending.push((next_key, None));
                    next_key += 1;
                }
                _ => world.poll(),
            }
            ending.retain_mut(|(lkey, snapshot)| {
                let is_pinned = world.in_flight.name_still(*lkey, snapshot);
                assert!(is_pinned || !world.names(*lkey), "seed {first}: key {lkey} is in flight");
                waited += u32::from(is_pinned);
                is_pinned
            });
        }
        // Later posts do not count.
        for at in 0..world.queues.len() {
            let earlier = world.queues[at].in_flight.iter().filter(|(_, is_complete)| !*is_complete).count();
            world.post(at, next_key + 1);
            (0..earlier).for_each(|_| world.complete(at));
        }
        while !world.completions.is_empty() {
            world.poll();
        }
        (0..3).for_each(|_| world.poll());
        for (lkey, snapshot) in &mut ending {
            assert!(!world.in_flight.name_still(*lkey, snapshot), "seed {first}: key {lkey} stays pinned");
        }
    }
    assert!(waited > 1000, "no deregistration had to wait");
}

#[test]
fn receives_posted_later_do_not_hold_up_a_deregistration() {
    let mut world = World::new();
    assert!(world.open(1, true));
    assert!(world.post(0, 5) && world.post(0, 6));
    let mut snapshot = None;
    assert!(world.in_flight.name_still(5, &mut snapshot));
    world.complete(0);
    world.poll();
    assert!(world.post(0, 6) && world.in_flight.name_still(5, &mut snapshot), "the second one was posted before");
    world.complete(0);
    world.poll();
    assert!(!world.in_flight.name_still(5, &mut snapshot));
    assert!(world.in_flight.name(5), "whoever comes now waits for the third one");
}

#[test]
fn a_qp_with_the_number_of_a_destroyed_one_waits_for_an_empty_cq() {
    let mut world = World::new();
    assert!(world.open(1, false) && world.post(0, 5));
    world.complete(0);
    world.destroy(0);
    assert!(!world.open(1, false), "its completion is left");
    assert!(world.open(1, true), "receives are other completions");
    for _ in 0..3 {
        world.poll();
    }
    assert!(world.open(1, false));
}

#[test]
fn a_completion_of_a_destroyed_queue_is_dropped_although_the_other_queue_of_the_number_is_in_use() {
    let mut world = World::new();
    assert!(world.open(1, false) && world.post(0, 5));
    world.complete(0);
    world.destroy(0);
    assert!(world.open(1, true) && world.post(1, 6));
    world.complete(1);
    let mut polled: Vec<_> = world.completions.drain(..).collect();
    assert_eq!(world.slot_cache.retire(&world.cq_slots, &mut polled, 0), 1);
    assert_eq!((polled[0].wr_id, world.queues[1].wr_ring.is_idle()), (7, true), "the receive");
}

#[test]
fn requests_that_cannot_be_counted_are_refused() {
    let wr_ring = Arc::new(WrRing::counting(2));
    let mut cursor = RecvCursor::new(&wr_ring);
    assert_eq!(cursor.file(RECEIVE - 1, &[1], true), Some(2 * RECEIVE - 1));
    for (wr_id, is_signaled) in [(RECEIVE, true), (1 << 63, true), (1, false)] {
        assert_eq!((cursor.file(wr_id, &[1], is_signaled), cursor.refuses(wr_id, is_signaled)), (None, true));
    }
    for _ in 0..2 {
        cursor.file(1, &[1], true).expect("room");
        cursor.advance();
    }
    assert_eq!((cursor.file(1, &[1], true), cursor.refuses(1, true)), (None, false), "full");
    // A precise queue takes all of them.
    let wr_ring = Arc::new(WrRing::new(7, 2, 1));
    assert!(SendCursor::new(&wr_ring).file(u64::MAX, &[1], false).is_some());
}
