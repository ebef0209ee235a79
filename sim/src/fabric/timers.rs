//! Timers with payloads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cmid_proto::Time;

use crate::fabric::table::Table;

/// The distance of the sequence numbers of [`Timers::arm`]: room for the timers of [`Timers::arm_before`].
const SPACING: u64 = 1 << 16;

/// Names one armed timer; timers of the same time fire in the order in which they were armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    due: Time,
    sequence: u64,
}

impl TimerKey {
    pub(crate) fn due(self) -> Time {
        self.due
    }
}

/// Armed timers, each with a payload of type `T`.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    /// The first one is armed; others may be cancelled.
    queue: BinaryHeap<Reverse<TimerKey>>,
    /// The payloads of those that are armed, by sequence number.
    payloads: Table<u64, T>,
    sequence: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { queue: BinaryHeap::new(), payloads: Table::default(), sequence: SPACING }
    }
}

impl<T> Timers<T> {
    pub(crate) fn arm(&mut self, due: Time, what: T) -> TimerKey {
        let key = TimerKey { due, sequence: self.sequence };
        self.sequence += SPACING;
        self.add(key, what)
    }

    /// Arms a timer that fires immediately before another one, even if the other one is cancelled.
    pub(crate) fn arm_before(&mut self, next: TimerKey, what: T) -> TimerKey {
        self.add(TimerKey { sequence: next.sequence - 1, ..next }, what)
    }

    fn add(&mut self, key: TimerKey, what: T) -> TimerKey {
        self.payloads.insert(key.sequence, what);
        self.queue.push(Reverse(key));
        key
    }

    /// Cancels a timer; no effect if it has fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.take(key);
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(key)| key.due)
    }

    /// Takes the first timer that is due at `until` or earlier.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, T)> {
        let &Reverse(key) = self.queue.peek().filter(|Reverse(key)| key.due <= until)?;
        self.take(key).map(|what| (key.due, what))
    }

    /// Takes the payload of a timer, if it is armed.
    fn take(&mut self, key: TimerKey) -> Option<T> {
        let what = self.payloads.remove(&key.sequence);
        while self.queue.peek().is_some_and(|Reverse(first)| !self.payloads.contains_key(&first.sequence)) {
            self.queue.pop();
        }
        what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_by_time_and_then_by_age() {
        let mut timers = Timers::default();
        let late = timers.arm(Time(5), 1);
        timers.arm(Time(3), 2);
        timers.arm(Time(3), 3);
        let mut fired = Vec::new();
        while let Some((at, what)) = timers.pop(Time(4)) {
            fired.push((at, what));
        }
        assert_eq!(fired, [(Time(3), 2), (Time(3), 3)]);
        assert_eq!(timers.next_due(), Some(Time(5)));
        timers.cancel(late);
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn a_cancelled_timer_neither_fires_nor_is_due() {
        let mut timers = Timers::default();
        let [first, second] = [1, 2].map(|at| timers.arm(Time(at), at));
        timers.arm(Time(3), 3);
        timers.cancel(second);
        assert_eq!((timers.pop(Time(9)), timers.next_due()), (Some((Time(1), 1)), Some(Time(3))));
        timers.cancel(first);
        assert_eq!((timers.pop(Time(9)), timers.pop(Time(9))), (Some((Time(3), 3)), None));
    }

    #[test]
    fn a_timer_armed_before_another_fires_first() {
        let mut timers = Timers::default();
        let first = timers.arm(Time(3), 1);
        timers.arm(Time(3), 2);
        let second = timers.arm_before(first, 3);
        let third = timers.arm_before(second, 4);
        timers.cancel(third);
        timers.arm_before(third, 5);
        let mut fired = Vec::new();
        while let Some((_, what)) = timers.pop(Time(3)) {
            fired.push(what);
        }
        assert_eq!(fired, [5, 3, 1, 2]);
    }
}
