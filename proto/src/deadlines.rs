//! Deadlines: one heap. When an operation ends, its entry becomes stale; it is dropped at the top, or by a compaction.
//! The nearest entry is never stale.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{Hash, Hasher};

use crate::key::IdKey;
use crate::time::Time;

/// The minimum number of stale entries that may stay in the heap.
const SLACK: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Time, IdKey)>>,
    /// The number of entries above which a compaction is due: twice the number that the last compaction left, plus
    /// [`SLACK`].
    most: usize,
}

/// The time of the earliest entry of an id; not after the id's deadline. It is before the deadline if the deadline was
/// moved or dropped since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed(Time);

impl Armed {
    pub(crate) const NOT: Armed = Armed(Time::NEVER);

    pub(crate) fn at(self) -> Time {
        self.0
    }

    /// Returns the time at which an entry of the id for `time` is to stand: `time` itself if it is the deadline `due`, the
    /// deadline if the entry is the earliest of the id. `None`: the entry is dropped.
    pub(crate) fn stands(&mut self, due: Time, time: Time) -> Option<Time> {
        if due != time && self.0 == time {
            self.0 = due;
        } else if due != time {
            return None;
        }
        (due != Time::NEVER).then_some(due)
    }
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        Deadlines { heap: BinaryHeap::new(), most: SLACK }
    }

    /// Returns the nearest deadline.
    pub(crate) fn first(&self) -> Option<(Time, IdKey)> {
        self.heap.peek().map(|&Reverse(entry)| entry)
    }

    /// Ensures that an id has an entry that is not after its deadline. Returns whether an entry may be stale at the top, or
    /// entries are too many: [`drop_stale`](Deadlines::drop_stale) must follow.
    pub(crate) fn arm(&mut self, armed: &mut Armed, due: Time, id: IdKey) -> bool {
        if due < armed.0 {
            armed.0 = due;
            self.heap.push(Reverse((due, id)));
            return self.heap.len() > self.most;
        }
        if armed.0 == due || self.first() != Some((armed.0, id)) {
            return false;
        }
        self.heap.pop();
        armed.0 = due;
        if due != Time::NEVER {
            self.heap.push(Reverse((due, id)));
        }
        !self.heap.is_empty()
    }

    /// Drops stale entries at the top, and all stale ones if they are too many. `stands` returns the time at which the
    /// entry of an id is to stand, see [`Armed::stands`].
    pub(crate) fn drop_stale(&mut self, mut stands: impl FnMut(IdKey, Time) -> Option<Time>) {
        while let Some((time, key)) = self.first() {
            let due = stands(key, time);
            if due == Some(time) {
                break;
            }
            self.heap.pop();
            if let Some(due) = due {
                self.heap.push(Reverse((due, key)));
            }
        }
        if self.heap.len() > self.most {
            let entries: Vec<_> = core::mem::take(&mut self.heap).into_vec();
            let standing = |Reverse((time, key))| stands(key, time).map(|due| Reverse((due, key)));
            let mut entries: Vec<_> = entries.into_iter().filter_map(standing).collect();
            entries.sort_unstable();
            entries.dedup();
            self.most = 2 * entries.len() + SLACK;
            self.heap = entries.into();
        }
    }

    /// Whether an entry exists; for checks.
    pub(crate) fn has(&self, time: Time, id: IdKey) -> bool {
        self.heap.iter().any(|&Reverse(entry)| entry == (time, id))
    }

    /// Whether there are more entries than may be; for checks.
    pub(crate) fn needs_compaction(&self) -> bool {
        self.heap.len() > self.most
    }
}

// Entries are an index of the ids' deadlines: cores in the same state are equal, whatever entries they have.
macro_rules! all_are_equal {
    ($($index:ty),+) => {$(
        impl PartialEq for $index {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }
        impl Eq for $index {}
        impl Hash for $index {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
    )+};
}
all_are_equal!(Armed, Deadlines);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> IdKey {
        IdKey::from_parts(0, slot, 1).unwrap()
    }

    #[test]
    fn an_entry_that_is_not_the_earliest_is_dropped() {
        let mut armed = Armed(Time(5));
        assert_eq!((armed.stands(Time(9), Time(7)), armed.at()), (None, Time(5)));
        assert_eq!((armed.stands(Time(9), Time(5)), armed.at()), (Some(Time(9)), Time(9)));
    }

    /// The deadlines of some ids, and their entries.
    struct Ids(Vec<(Time, Armed)>, Deadlines);

    impl Ids {
        fn set(&mut self, slot: u32, due: Time) {
            let Ids(ids, deadlines) = self;
            let id = &mut ids[slot as usize];
            id.0 = due;
            if deadlines.arm(&mut id.1, due, key(slot)) {
                deadlines.drop_stale(|key, time| ids.get_mut(key.slot()).and_then(|id| id.1.stands(id.0, time)));
            }
            let nearest = ids.iter().enumerate().map(|(slot, id)| (id.0, key(slot as u32))).min();
            assert_eq!(deadlines.first(), nearest.filter(|&(due, _)| due != Time::NEVER));
        }
    }

    #[test]
    fn the_nearest_is_that_of_all_ids_and_stale_entries_are_few() {
        let mut ids = Ids(alloc::vec![(Time::NEVER, Armed::NOT); 50], Deadlines::new());
        let mut seed = 7_u64;
        for step in 0..100_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let due = if seed >> 60 < 5 { Time::NEVER } else { Time(seed >> 33 & 0xfff) };
            ids.set((seed >> 50) as u32 % (1 + step % 50), due);
            assert!(ids.1.heap.len() <= 2 * 50 + SLACK + 1, "{} entries", ids.1.heap.len());
        }
    }

    /// An id replaces its deadline by a nearer one and then has none; its next deadline is the first one again.
    #[test]
    fn a_deadline_that_comes_again_and_again_is_dropped() {
        let mut ids = Ids(alloc::vec![(Time::NEVER, Armed::NOT); 2], Deadlines::new());
        ids.set(1, Time(70));
        for _ in 0..10_000 {
            for due in [Time(100), Time(50), Time::NEVER] {
                ids.set(0, due);
            }
            assert!(ids.1.heap.len() <= SLACK + 3, "{} entries", ids.1.heap.len());
        }
    }
}
