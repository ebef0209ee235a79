//! Deadlines. The nearest is stored by itself, the others in a heap. When an operation ends, its entry stays in the heap and is
//! swept out later.
//!
//! Most operations end long before their deadline, and most deadlines are later than those before them. So to arm one is
//! to append to a heap, and to drop one is to do nothing. The nearest deadline is exact all the same: what is left behind
//! never stays in its place.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};
use core::hash::{Hash, Hasher};

use crate::key::IdKey;
use crate::time::Time;

/// How many entries may be left behind, however few are not.
const SLACK: usize = 64;

/// A deadline in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    due: Time,
    id: IdKey,
}

impl Entry {
    /// By deadline, then by key, as one number: a heap does nothing but compare.
    #[inline]
    fn rank(&self) -> u128 {
        u128::from(self.due.0) << 64 | u128::from(self.id.to_bits())
    }
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }
    #[inline]
    fn le(&self, other: &Self) -> bool {
        self.rank() <= other.rank()
    }
    #[inline]
    fn ge(&self, other: &Self) -> bool {
        self.rank() >= other.rank()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    /// Not after any entry of the heap, which is empty where there is none.
    nearest: Option<Entry>,
    heap: BinaryHeap<Reverse<Entry>>,
    /// With more entries the heap is to be swept: twice as many as the last sweep left, and some.
    most: usize,
    /// Whether an entry may be there twice.
    twice: bool,
}

/// The time of the earliest entry of an id: not after its deadline. Where it is before that, the deadline has been moved or
/// dropped since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed(Time);

impl Armed {
    pub(crate) const NOT: Armed = Armed(Time::NEVER);

    pub(crate) fn at(self) -> Time {
        self.0
    }
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        Deadlines { nearest: None, heap: BinaryHeap::new(), most: SLACK, twice: false }
    }

    /// The nearest deadline.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Time, IdKey)> {
        self.nearest.map(|Entry { due, id }| (due, id))
    }

    /// Whether an id's earliest entry is the nearest of all, but not its deadline any more.
    #[inline]
    pub(crate) fn is_stale(&self, armed: Armed, due: Time, id: IdKey) -> bool {
        armed.0 != due && self.nearest == Some(Entry { due: armed.0, id })
    }

    /// Sees to it that an id has an entry not after its deadline.
    #[inline]
    pub(crate) fn arm(&mut self, armed: &mut Armed, due: Time, id: IdKey) {
        if due < armed.0 {
            armed.0 = due;
            let entry = Entry { due, id };
            if self.nearest.is_none() {
                self.nearest = Some(entry);
            } else {
                self.push(entry);
            }
        }
    }

    fn push(&mut self, mut entry: Entry) {
        if let Some(nearest) = &mut self.nearest
            && entry < *nearest
        {
            core::mem::swap(nearest, &mut entry);
        }
        self.heap.push(Reverse(entry));
    }

    /// Whether there are too many entries.
    #[inline]
    pub(crate) fn needs_compaction(&self) -> bool {
        self.heap.len() > self.most
    }

    /// Keeps only the entries that are their ids' earliest.
    #[cold]
    pub(crate) fn compact(&mut self, is_earliest: impl Fn(Time, IdKey) -> bool) {
        let nearest = self.nearest;
        self.heap.retain(|&Reverse(entry)| is_earliest(entry.due, entry.id) && nearest != Some(entry));
        if core::mem::take(&mut self.twice) {
            let mut entries = core::mem::take(&mut self.heap).into_sorted_vec();
            entries.dedup();
            self.heap = entries.into();
        }
        self.most = 2 * self.heap.len() + SLACK;
    }

    /// Takes the nearest entry away, if it is the only one: that of an id which has no deadline any more.
    #[inline]
    pub(crate) fn drop_only(&mut self, armed: &mut Armed) -> bool {
        let is_only = self.heap.is_empty();
        if is_only {
            self.nearest = None;
            *armed = Armed::NOT;
        }
        is_only
    }

    /// Takes the first entry away, of this id if it lives. It is armed anew for a deadline that has been moved.
    pub(crate) fn drop_first(&mut self, id: Option<(&mut Armed, Time)>) {
        let first = core::mem::replace(&mut self.nearest, self.heap.pop().map(|Reverse(entry)| entry));
        if let Some(Entry { due: time, id: key }) = first
            && let Some((armed, due)) = id
            && armed.0 == time
        {
            *armed = Armed::NOT;
            // It may have had a nearer deadline for a while, and stand there already for this one, or for its next.
            self.twice = true;
            self.arm(armed, due, key);
        }
    }

    /// Whether an entry is there: for checks.
    pub(crate) fn has(&self, time: Time, id: IdKey) -> bool {
        let wanted = Entry { due: time, id };
        self.nearest == Some(wanted) || self.heap.iter().any(|&Reverse(entry)| entry == wanted)
    }
}

// It only helps to find what the deadlines of the ids say: cores in the same state are equal whatever is left behind.
impl PartialEq for Armed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Armed {}
impl Hash for Armed {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn what_is_left_behind_and_what_is_there_twice_is_swept_out() {
        let mut deadlines = Deadlines::new();
        let id = IdKey::from_parts(0, 0, 1).unwrap();
        let mut armed = Armed::NOT;
        let far = Time(u64::MAX - 1);
        deadlines.arm(&mut armed, far, id);
        for nearer in 1..100_000 {
            deadlines.arm(&mut armed, Time(nearer), id);
            assert_eq!(deadlines.first(), Some((Time(nearer), id)));
            // Its operation has ended: the other deadline counts again.
            deadlines.drop_first(Some((&mut armed, far)));
            assert_eq!(deadlines.first(), Some((far, id)));
            if deadlines.needs_compaction() {
                deadlines.compact(|time, _| armed.at() == time);
            }
            assert!(deadlines.heap.len() <= SLACK + 2, "{} entries", deadlines.heap.len());
        }
    }

    /// An id gives up its deadline for a nearer one and has none then; its next one is the old one again.
    #[test]
    fn a_deadline_that_comes_again_and_again_is_swept_out() {
        let mut deadlines = Deadlines::new();
        let [id, other] = [0, 1].map(|slot| IdKey::from_parts(0, slot, 1).unwrap());
        let (mut armed, mut armed_other) = (Armed::NOT, Armed::NOT);
        let [near, between, far] = [50, 70, 100].map(Time);
        deadlines.arm(&mut armed_other, between, other);
        for _ in 0..100_000 {
            deadlines.arm(&mut armed, far, id);
            deadlines.arm(&mut armed, near, id);
            deadlines.drop_first(Some((&mut armed, Time::NEVER)));
            assert_eq!(deadlines.first(), Some((between, other)));
            deadlines.arm(&mut armed, far, id);
            if deadlines.needs_compaction() {
                deadlines.compact(|time, key| if key == id { armed.at() == time } else { time == between });
            }
            assert!(deadlines.heap.len() <= SLACK + 4, "{} entries", deadlines.heap.len());
        }
    }

    #[test]
    fn what_a_sweep_leaves_is_in_order() {
        let mut deadlines = Deadlines::new();
        let mut kept = Vec::new();
        for slot in 0..1000_u32 {
            let id = IdKey::from_parts(0, slot, 1).unwrap();
            let due = Time(u64::from(slot) * 7919 % 1009);
            let mut armed = Armed::NOT;
            deadlines.arm(&mut armed, due, id);
            if slot % 3 == 0 {
                kept.push((due, id));
            }
        }
        deadlines.compact(|_, id| id.slot() % 3 == 0);
        kept.sort();
        let mut left = Vec::new();
        while let Some(first) = deadlines.first() {
            left.push(first);
            deadlines.drop_first(None);
        }
        left.retain(|&(_, id)| id.slot() % 3 == 0);
        assert_eq!(left, kept);
    }
}
