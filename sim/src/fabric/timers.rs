//! Timers with payloads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cmid_proto::Time;

/// The distance of the sequence numbers of [`Timers::arm`]: room for the timers of [`Timers::arm_before`].
const SPACING: u64 = 1 << 16;

/// Names one armed timer; timers of the same time fire in the order in which they were armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    due: Time,
    sequence: u64,
    /// Where its payload is.
    slot: usize,
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
    /// The sequence number and the payload of each timer that is armed.
    slots: Vec<Option<(u64, T)>>,
    free: Vec<usize>,
    sequence: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { queue: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), sequence: SPACING }
    }
}

impl<T> Timers<T> {
    pub(crate) fn arm(&mut self, due: Time, what: T) -> TimerKey {
        self.sequence += SPACING;
        self.add(due, self.sequence - SPACING, what)
    }

    /// Arms a timer that fires immediately before another one, even if the other one is cancelled.
    pub(crate) fn arm_before(&mut self, next: TimerKey, what: T) -> TimerKey {
        self.add(next.due, next.sequence - 1, what)
    }

    fn add(&mut self, due: Time, sequence: u64, what: T) -> TimerKey {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some((sequence, what)),
            None => self.slots.push(Some((sequence, what))),
        }
        let key = TimerKey { due, sequence, slot };
        self.queue.push(Reverse(key));
        key
    }

    /// Cancels a timer; no effect if it has fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.take(key);
    }

    /// The time of the first timer. One at [`Time::NEVER`] is not due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(key)| key.due).filter(|due| *due < Time::NEVER)
    }

    /// Takes the first timer that is due at `until` or earlier.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, T)> {
        let &Reverse(key) = self.queue.peek().filter(|Reverse(key)| key.due <= until && key.due < Time::NEVER)?;
        self.take(key).map(|what| (key.due, what))
    }

    /// Takes the payload of a timer, if it is armed.
    fn take(&mut self, key: TimerKey) -> Option<T> {
        let is_it = |armed: &mut (u64, T)| armed.0 == key.sequence;
        let (_, what) = self.slots.get_mut(key.slot)?.take_if(is_it)?;
        self.free.push(key.slot);
        while self.queue.peek().is_some_and(|Reverse(first)| !self.is_armed(first)) {
            self.queue.pop();
        }
        Some(what)
    }

    fn is_armed(&self, key: &TimerKey) -> bool {
        matches!(self.slots.get(key.slot), Some(Some((sequence, _))) if *sequence == key.sequence)
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
    fn a_timer_that_is_never_due_does_not_fire() {
        let mut timers = Timers::default();
        timers.arm(Time::NEVER, 1);
        assert_eq!((timers.next_due(), timers.pop(Time::NEVER)), (None, None));
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
