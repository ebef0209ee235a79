//! Timers with payloads.

use std::collections::BTreeMap;

use cmid_proto::Time;

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
    /// Payloads are boxed, because the map moves its entries.
    queue: BTreeMap<TimerKey, Box<T>>,
    sequence: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { queue: BTreeMap::new(), sequence: SPACING }
    }
}

impl<T> Timers<T> {
    pub(crate) fn arm(&mut self, due: Time, what: T) -> TimerKey {
        let key = TimerKey { due, sequence: self.sequence };
        self.sequence += SPACING;
        self.queue.insert(key, Box::new(what));
        key
    }

    /// Arms a timer that fires immediately before another one, even if the other one is cancelled.
    pub(crate) fn arm_before(&mut self, next: TimerKey, what: T) -> TimerKey {
        let key = TimerKey { sequence: next.sequence - 1, ..next };
        self.queue.insert(key, Box::new(what));
        key
    }

    /// Cancels a timer; no effect if it has fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.queue.remove(&key);
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.queue.first_key_value().map(|(key, _)| key.due)
    }

    /// Takes the first timer that is due at `until` or earlier.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, T)> {
        let first = self.queue.first_entry()?;
        if first.key().due > until {
            return None;
        }
        let (key, what) = first.remove_entry();
        Some((key.due, *what))
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
