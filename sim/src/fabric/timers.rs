//! What is going to happen, in the order in which it will.

use std::collections::BTreeMap;

use cmid_proto::{GroupKey, Time};

use crate::data::transfer::Transfer;
use crate::id::IdNo;
use crate::resolve::Lookup;
use crate::wire::Message;

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Due {
    /// A connection manager's message arrives.
    Message(Message),
    /// An address lookup ends (the queue of `addr.c`).
    Address { id: IdNo, outcome: Lookup },
    /// A route is known (`cma_wq`).
    Route { id: IdNo },
    /// A multicast group is joined (`cma_wq`).
    Joined { id: IdNo, group: GroupKey },
    /// A message of this id was not answered in time.
    Unanswered { id: IdNo },
    /// The time wait of this id is over.
    TimeWaitOver { id: IdNo },
    /// Something of the data path arrives.
    Data(Transfer),
}

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

#[derive(Debug)]
pub(crate) struct Timers {
    /// Boxed, since entries are moved about when others come and go.
    queue: BTreeMap<TimerKey, Box<Due>>,
    sequence: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { queue: BTreeMap::new(), sequence: SPACING }
    }
}

impl Timers {
    pub(crate) fn arm(&mut self, due: Time, what: Due) -> TimerKey {
        let key = TimerKey { due, sequence: self.sequence };
        self.sequence += SPACING;
        self.queue.insert(key, Box::new(what));
        key
    }

    /// Arms a timer that fires just before another one, or would if that has been cancelled.
    pub(crate) fn arm_before(&mut self, next: TimerKey, what: Due) -> TimerKey {
        let key = TimerKey { sequence: next.sequence - 1, ..next };
        self.queue.insert(key, Box::new(what));
        key
    }

    /// Forgets a timer; harmless if it has fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.queue.remove(&key);
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.queue.first_key_value().map(|(key, _)| key.due)
    }

    /// Takes the first timer that is due at `until` or earlier.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, Due)> {
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
        let late = timers.arm(Time(5), Due::Route { id: IdNo(1) });
        timers.arm(Time(3), Due::Route { id: IdNo(2) });
        timers.arm(Time(3), Due::Route { id: IdNo(3) });
        let mut fired = Vec::new();
        while let Some((at, Due::Route { id })) = timers.pop(Time(4)) {
            fired.push((at, id));
        }
        assert_eq!(fired, [(Time(3), IdNo(2)), (Time(3), IdNo(3))]);
        assert_eq!(timers.next_due(), Some(Time(5)));
        timers.cancel(late);
        assert_eq!(timers.next_due(), None);
    }
    #[test]
    fn a_timer_armed_before_another_fires_first() {
        let mut timers = Timers::default();
        let first = timers.arm(Time(3), Due::Route { id: IdNo(1) });
        timers.arm(Time(3), Due::Route { id: IdNo(2) });
        let second = timers.arm_before(first, Due::Route { id: IdNo(3) });
        let third = timers.arm_before(second, Due::Route { id: IdNo(4) });
        timers.cancel(third);
        timers.arm_before(third, Due::Route { id: IdNo(5) });
        let mut fired = Vec::new();
        while let Some((_, Due::Route { id })) = timers.pop(Time(3)) {
            fired.push(id);
        }
        assert_eq!(fired, [5, 3, 1, 2].map(IdNo));
    }
}
