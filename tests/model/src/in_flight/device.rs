//! The device and its provider: which work requests are in flight, and what the CQs have.

use std::collections::{BTreeMap, VecDeque};

use crate::input::Input;

/// A work queue: that of a QP, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Queue {
    pub(super) qp: usize,
    pub(super) is_recv: bool,
}

/// A work request: the user's `wr_id`, and the keys of its ranges.
#[derive(Clone, Debug)]
pub(super) struct Wr {
    pub(super) wr_id: u64,
    pub(super) keys: Vec<u32>,
    pub(super) is_signaled: bool,
    /// Whether it ends with an answer of the peer.
    pub(super) is_read: bool,
    /// Whether the provider has returned an error. The device may have it nevertheless.
    pub(super) is_refused: bool,
}

/// The queue of a QP, or the SRQ, that a work request was posted to; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poster {
    Queue {
        qp: u64,
        is_recv: bool,
    },
    Srq(u64),
    /// Nobody: the completion is reported twice, was not posted, or is the application's own.
    Nobody,
}

/// A work request that was posted.
struct Posted {
    poster: Poster,
    /// Its number among all.
    number: u64,
    /// The `wr_id` that the device has.
    token: u64,
    wr: Wr,
}

#[derive(Default)]
struct QueueState {
    /// The number of its QP.
    qp: u64,
    /// The last `wr_id` that it was posted.
    last: Option<u64>,
    /// What the device has not begun.
    waiting: VecDeque<Posted>,
    /// The reads of iWARP whose answer has not come.
    asked: VecDeque<Posted>,
    /// What no polled completion has retired.
    unretired: VecDeque<Unretired>,
    /// Whether it is the queue of sends of a QP on iWARP.
    is_unordered: bool,
}

/// A request that occupies its queue.
struct Unretired {
    number: u64,
    is_refused: bool,
    /// Whether a polled completion has ended it, before an earlier request.
    is_over: bool,
}

impl QueueState {
    /// A completion is polled. In an ordered queue it ends all before it; on iWARP itself.
    fn retire(&mut self, posted: &Posted) {
        if !self.is_unordered {
            while self.unretired.pop_front().is_some_and(|one| one.number != posted.number) {}
            return;
        }
        for one in &mut self.unretired {
            one.is_over |= one.number == posted.number;
        }
        while self.unretired.front().is_some_and(|one| one.is_over) {
            self.unretired.pop_front();
        }
    }

    /// The device begins a request, or has an answer. Returns what has completed.
    fn next(&mut self, input: &mut Input<'_>) -> Option<Posted> {
        if !self.asked.is_empty() && (self.waiting.is_empty() || input.once_in(2)) {
            return self.asked.pop_front();
        }
        let next = self.waiting.pop_front()?;
        if self.is_unordered && next.wr.is_read {
            self.asked.push_back(next);
            return None;
        }
        Some(next)
    }
}

/// A completion in a CQ.
struct Entry {
    /// The queue; `None` for one of a destroyed QP.
    queue: Option<Queue>,
    qp_num: u32,
    posted: Posted,
    of_srq: bool,
    /// Whether the application has asked for it.
    is_told: bool,
    is_repeated: bool,
}

pub(super) struct Device {
    queues: BTreeMap<Queue, QueueState>,
    /// The SRQ of each QP that has one.
    srq_of: BTreeMap<usize, usize>,
    /// The receives of each SRQ that no QP has taken, and those that each QP has taken.
    srqs: BTreeMap<usize, VecDeque<Posted>>,
    taken: BTreeMap<usize, Vec<Posted>>,
    cqs: Vec<VecDeque<Entry>>,
    /// The last completion of each CQ, with its queue, and whether one was repeated that must not be.
    last: Vec<Option<(u64, u32, Queue)>>,
    has_repeated: Vec<bool>,
    posted: u64,
}

impl Device {
    pub(super) fn new(cqs: usize) -> Self {
        Device {
            queues: BTreeMap::new(),
            srq_of: BTreeMap::new(),
            srqs: BTreeMap::new(),
            taken: BTreeMap::new(),
            cqs: (0..cqs).map(|_| VecDeque::new()).collect(),
            last: vec![None; cqs],
            has_repeated: vec![false; cqs],
            posted: 0,
        }
    }

    pub(super) fn create(&mut self, qp: usize, serial: u64, srq: Option<usize>, is_iwarp: bool) {
        for is_recv in [false, true] {
            let is_unordered = is_iwarp && !is_recv;
            self.queues.insert(Queue { qp, is_recv }, QueueState { qp: serial, is_unordered, ..QueueState::default() });
        }
        self.srq_of.extend(srq.map(|srq| (qp, srq)));
    }

    fn next(&mut self, poster: Poster, token: u64, wr: Wr) -> Posted {
        self.posted += 1;
        Posted { poster, number: self.posted, token, wr }
    }

    /// The provider gets a request. `has_refused`: also one that it refuses.
    pub(super) fn post(&mut self, queue: Queue, token: u64, wr: Wr, has_refused: bool) {
        let qp = self.queues.get(&queue).map_or(0, |state| state.qp);
        let posted = self.next(Poster::Queue { qp, is_recv: queue.is_recv }, token, wr);
        if let Some(state) = self.queues.get_mut(&queue) {
            let (number, is_refused) = (posted.number, posted.wr.is_refused);
            state.last = Some(token);
            state.unretired.push_back(Unretired { number, is_refused, is_over: false });
            if !is_refused || has_refused {
                state.waiting.push_back(posted);
            }
        }
    }

    pub(super) fn post_srq(&mut self, srq: usize, serial: u64, token: u64, wr: Wr) {
        let posted = self.next(Poster::Srq(serial), token, wr);
        self.srqs.entry(srq).or_default().push_back(posted);
    }

    /// The number of work requests that no polled completion has retired.
    pub(super) fn unretired(&self, queue: Queue) -> usize {
        self.queues.get(&queue).map_or(0, |state| state.unretired.len())
    }

    /// Whether nothing is posted to a queue on iWARP, because a request was refused.
    pub(super) fn is_stuck(&self, queue: Queue) -> bool {
        self.queues
            .get(&queue)
            .is_some_and(|state| state.is_unordered && state.unretired.iter().any(|one| one.is_refused))
    }

    /// Executes the next work request of a queue; or its QP takes a receive of its SRQ, or completes one of those in
    /// any order. Returns the `wr_id` of the completion, its CQ, and whether it has failed.
    pub(super) fn execute(
        &mut self,
        queue: Queue,
        cq: usize,
        qp_num: u32,
        input: &mut Input<'_>,
    ) -> Option<(u64, usize, bool)> {
        let srq = self.srq_of.get(&queue.qp).copied().filter(|_| queue.is_recv);
        let posted = match srq {
            Some(srq) => {
                let taken = self.taken.entry(queue.qp).or_default();
                if taken.is_empty() || input.once_in(2) {
                    taken.extend(self.srqs.get_mut(&srq).and_then(VecDeque::pop_front));
                    return None;
                }
                taken.swap_remove(input.below(taken.len()))
            }
            None => self.queues.get_mut(&queue)?.next(input)?,
        };
        // One that fails is completed in any case. On iWARP the provider has all as signaled ones.
        let (is_unsignaled, has_failed) = (srq.is_none() && !posted.wr.is_signaled, input.once_in(4));
        let is_unordered = self.queues.get(&queue).is_some_and(|state| state.is_unordered);
        if is_unsignaled && !has_failed && !is_unordered {
            return None;
        }
        let token = posted.token;
        self.last[cq] = Some((token, qp_num, queue));
        let (of_srq, is_told) = (srq.is_some(), !is_unsignaled || has_failed);
        let entry = Entry { queue: Some(queue), qp_num, posted, of_srq, is_told, is_repeated: false };
        self.cqs[cq].push_back(entry);
        Some((token, cq, has_failed))
    }

    /// Reports the last completion of a CQ again, and returns it.
    pub(super) fn repeat(&mut self, cq: usize, is_iwarp: impl Fn(usize) -> bool) -> Option<(u64, u32)> {
        let (token, qp_num, queue) = self.last[cq]?;
        // Soft-iWARP does so.
        let is_repeated = queue.is_recv || !is_iwarp(queue.qp);
        self.complete_for_nobody(cq, qp_num, token, is_repeated);
        Some((token, qp_num))
    }

    /// Completes a number of a queue that is not posted before this completion is polled, and returns it.
    pub(super) fn invent(&mut self, queue: Queue, cq: usize, capacity: u32) -> Option<u64> {
        let token = self.queues.get(&queue)?.last? + 1 + u64::from(capacity);
        self.complete_for_nobody(cq, u32::MAX, token, true);
        Some(token)
    }

    /// Reports a completion of a request that the application has posted itself.
    pub(super) fn complete_own(&mut self, cq: usize, token: u64) {
        self.complete_for_nobody(cq, u32::MAX, token, false);
    }

    fn complete_for_nobody(&mut self, cq: usize, qp_num: u32, token: u64, is_repeated: bool) {
        let wr = Wr { wr_id: 0, keys: Vec::new(), is_signaled: true, is_read: false, is_refused: false };
        let posted = Posted { poster: Poster::Nobody, number: 0, token, wr };
        self.cqs[cq].push_back(Entry { queue: None, qp_num, posted, of_srq: false, is_told: false, is_repeated });
    }

    /// The provider has returned so many completions of a CQ. Returns the `wr_id`s that the application gets, and
    /// whether one was reported twice until now.
    pub(super) fn poll(&mut self, cq: usize, count: usize) -> (Vec<u64>, bool) {
        let mut expected = Vec::new();
        for Entry { queue, posted, of_srq, is_told, is_repeated, .. } in self.cqs[cq].drain(..count) {
            self.has_repeated[cq] |= is_repeated;
            if (queue.is_some() || of_srq) && is_told && !posted.wr.is_refused {
                expected.push(posted.wr.wr_id);
            }
            if let Some(state) = queue.filter(|_| !of_srq).and_then(|queue| self.queues.get_mut(&queue)) {
                state.retire(&posted);
            }
        }
        (expected, self.has_repeated[cq])
    }

    /// Destroys a QP. With its number, the provider removes its completions from all CQs.
    pub(super) fn destroy(&mut self, qp: usize, removed: Option<u32>) {
        self.queues.retain(|queue, _| queue.qp != qp);
        self.taken.remove(&qp);
        self.srq_of.remove(&qp);
        // What is removed was not reported once.
        for last in self.last.iter_mut().filter(|last| last.is_some_and(|(_, number, _)| removed == Some(number))) {
            *last = None;
        }
        for cq in &mut self.cqs {
            cq.retain(|entry| removed != Some(entry.qp_num));
            cq.iter_mut()
                .filter(|entry| entry.queue.is_some_and(|queue| queue.qp == qp))
                .for_each(|entry| entry.queue = None);
        }
    }

    /// Destroys an SRQ.
    pub(super) fn destroy_srq(&mut self, srq: usize) {
        self.srqs.remove(&srq);
    }

    /// A CQ is not polled any more: what its completions name is not written to.
    pub(super) fn close(&mut self, cq: usize) {
        self.cqs[cq].clear();
    }

    /// Whether a work request in flight names this key.
    pub(super) fn names(&self, key: u32) -> bool {
        self.in_flight().any(|posted| posted.wr.keys.contains(&key))
    }

    /// The requests in flight of a queue, as the provider knows them.
    pub(super) fn of(&self, poster: Poster) -> impl Iterator<Item = u64> {
        self.in_flight().filter(move |posted| posted.poster == poster).map(|posted| posted.token)
    }

    /// What may be executed, or has a completion that can be polled.
    fn in_flight(&self) -> impl Iterator<Item = &Posted> {
        let waiting = self.queues.values().flat_map(|state| state.waiting.iter().chain(&state.asked));
        let of_srqs = self.srqs.values().flatten().chain(self.taken.values().flatten());
        let completed = self.cqs.iter().flatten().map(|entry| &entry.posted);
        waiting.chain(of_srqs).chain(completed)
    }
}
