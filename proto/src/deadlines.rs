//! Deadlines. The nearest entry is stored apart. Of the others, an entry after or before all of a sorted list is in
//! that list, and the rest are in a heap. When an operation ends, its entry becomes stale; a later compaction removes
//! it.
//!
//! Most operations end long before their deadline, and most new deadlines are later than all others. In this case
//! arming a deadline appends to the list, and dropping it does nothing or takes the first entry of the list. The
//! nearest entry is never stale.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::hash::{Hash, Hasher};

use crate::key::IdKey;
use crate::time::Time;

/// The minimum number of stale entries that may stay in the heap.
const SLACK: usize = 64;

/// A deadline in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    due: Time,
    id: IdKey,
}

impl Entry {
    /// The order by deadline, then by key, as one number, so that a comparison is one instruction or two.
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
    /// The nearest entry: not after any other. If it is `None`, there is no other.
    nearest: Option<Entry>,
    /// Other entries, in ascending order.
    sorted: VecDeque<Entry>,
    heap: BinaryHeap<Reverse<Entry>>,
    /// No entry is after this time.
    latest: Time,
    /// The number of other entries above which a compaction is due: twice the number that the last compaction left,
    /// plus [`SLACK`].
    most: usize,
    /// Whether there may be equal entries.
    twice: bool,
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
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        Deadlines {
            nearest: None,
            sorted: VecDeque::new(),
            heap: BinaryHeap::new(),
            latest: Time::ZERO,
            most: SLACK,
            twice: false,
        }
    }

    /// Returns the nearest deadline.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Time, IdKey)> {
        self.nearest.map(|Entry { due, id }| (due, id))
    }

    /// Whether the nearest entry is the earliest of this id, and is not the id's deadline any more.
    #[inline]
    pub(crate) fn is_stale(&self, armed: Armed, due: Time, id: IdKey) -> bool {
        armed.0 != due && self.nearest == Some(Entry { due: armed.0, id })
    }

    /// Ensures that an id has an entry that is not after its deadline.
    #[inline]
    pub(crate) fn arm(&mut self, armed: &mut Armed, due: Time, id: IdKey) {
        if due < armed.0 {
            armed.0 = due;
            let entry = Entry { due, id };
            if self.nearest.is_none() {
                (self.nearest, self.latest) = (Some(entry), due);
            } else if due > self.latest {
                self.latest = due;
                self.sorted.push_back(entry);
            } else {
                self.push(entry);
            }
        }
    }

    /// Adds an entry that is not after all others.
    #[inline(never)]
    fn push(&mut self, mut entry: Entry) {
        if let Some(nearest) = self.nearest.as_mut().filter(|nearest| entry < **nearest) {
            core::mem::swap(nearest, &mut entry);
        }
        if self.sorted.back().is_none_or(|last| *last <= entry) {
            self.sorted.push_back(entry);
        } else if self.sorted.front().is_some_and(|first| entry <= *first) {
            self.sorted.push_front(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// Removes the nearest entry of the list and the heap.
    #[inline]
    fn pop(&mut self) -> Option<Entry> {
        if self.heap.is_empty() { self.sorted.pop_front() } else { self.pop_any() }
    }

    #[inline(never)]
    fn pop_any(&mut self) -> Option<Entry> {
        match (self.heap.peek(), self.sorted.front()) {
            (Some(Reverse(entry)), Some(first)) if first <= entry => self.sorted.pop_front(),
            (Some(_), _) => self.heap.pop().map(|Reverse(entry)| entry),
            (None, _) => self.sorted.pop_front(),
        }
    }

    /// Returns the number of entries besides the nearest.
    #[inline]
    fn others(&self) -> usize {
        self.sorted.len() + self.heap.len()
    }

    /// Whether there are enough entries for a compaction.
    #[inline]
    pub(crate) fn needs_compaction(&self) -> bool {
        self.others() > self.most
    }

    /// Removes all entries that are not the earliest of their id.
    #[cold]
    pub(crate) fn compact(&mut self, is_earliest: impl Fn(Time, IdKey) -> bool) {
        let nearest = self.nearest;
        let is_kept = |entry: &Entry| is_earliest(entry.due, entry.id) && nearest != Some(*entry);
        self.sorted.retain(is_kept);
        self.heap.retain(|Reverse(entry)| is_kept(entry));
        if core::mem::take(&mut self.twice) {
            let mut entries: Vec<_> = core::mem::take(&mut self.sorted).into();
            entries.extend(core::mem::take(&mut self.heap).into_iter().map(|Reverse(entry)| entry));
            entries.sort_unstable();
            entries.dedup();
            self.sorted = entries.into();
        }
        self.most = 2 * self.others() + SLACK;
    }

    /// Removes the nearest entry, of an id that has no deadline any more, if no other entry exists. Returns whether it
    /// did.
    #[inline]
    pub(crate) fn drop_only(&mut self, armed: &mut Armed) -> bool {
        let is_only = self.sorted.is_empty() && self.heap.is_empty();
        if is_only {
            self.nearest = None;
            *armed = Armed::NOT;
        }
        is_only
    }

    /// Removes the nearest entry, of an id that has no deadline any more. Returns whether no entry is left.
    #[inline]
    pub(crate) fn drop_nearest(&mut self, armed: &mut Armed) -> bool {
        let is_only = self.drop_only(armed);
        if !is_only {
            *armed = Armed::NOT;
            self.twice = true;
            self.nearest = self.pop();
        }
        is_only
    }

    /// Removes the nearest entry. `id` contains the data of its id, if the id still exists. A deadline that was moved
    /// is armed anew.
    pub(crate) fn drop_first(&mut self, id: Option<(&mut Armed, Time)>) {
        let next = self.pop();
        let first = core::mem::replace(&mut self.nearest, next);
        let Some(Entry { due: time, id: key }) = first else { return };
        if let Some((armed, due)) = id.filter(|(armed, _)| armed.0 == time) {
            *armed = Armed::NOT;
            // If the id had a nearer deadline in the meantime, an entry for this deadline or for its next one may exist
            // already.
            self.twice = true;
            self.arm(armed, due, key);
        }
    }

    /// Whether an entry exists; for checks.
    pub(crate) fn has(&self, time: Time, id: IdKey) -> bool {
        let wanted = Entry { due: time, id };
        self.nearest == Some(wanted)
            || self.sorted.contains(&wanted)
            || self.heap.iter().any(|&Reverse(entry)| entry == wanted)
    }
}

// Entries are an index of the ids' deadlines: cores in the same state are equal, whatever entries they have.
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
            // The operation with the nearer deadline has ended: the other deadline applies again.
            deadlines.drop_first(Some((&mut armed, far)));
            assert_eq!(deadlines.first(), Some((far, id)));
            if deadlines.needs_compaction() {
                deadlines.compact(|time, _| armed.at() == time);
            }
            assert!(deadlines.others() <= SLACK + 2, "{} entries", deadlines.others());
        }
    }

    /// The heap compares by `lt`, `le` and `ge`. They are implemented by hand, because they are faster than the
    /// defaults by `cmp`.
    #[test]
    fn all_comparisons_of_entries_agree() {
        let entries: Vec<Entry> =
            (0..4).map(|at| Entry { due: Time(at / 2), id: IdKey::from_parts(0, at as u32 % 2, 1).unwrap() }).collect();
        for (at, left) in entries.iter().enumerate() {
            for (other, right) in entries.iter().enumerate() {
                let by_cmp = left.cmp(right);
                assert_eq!((by_cmp, left.partial_cmp(right)), (at.cmp(&other), Some(at.cmp(&other))));
                assert_eq!(
                    (left < right, left <= right, left >= right),
                    (by_cmp.is_lt(), by_cmp.is_le(), by_cmp.is_ge())
                );
            }
        }
    }

    /// An id replaces its deadline by a nearer one and then has none; its next deadline is the first one again.
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
            assert!(deadlines.others() <= SLACK + 4, "{} entries", deadlines.others());
        }
    }

    /// Arms `dues` in order, takes the nearest entry after each number of them that is in `taken`, and compares the
    /// entries with a sorted list.
    fn compare_order(dues: &[u64], slots: &[u32], taken: u32) {
        let mut deadlines = Deadlines::new();
        let mut sorted = Vec::new();
        for (at, (&due, &slot)) in dues.iter().zip(slots).enumerate() {
            let entry = (Time(due), IdKey::from_parts(0, slot, 1).unwrap());
            deadlines.arm(&mut Armed::NOT.clone(), entry.0, entry.1);
            sorted.push(entry);
            sorted.sort_unstable();
            assert_eq!(deadlines.first(), sorted.first().copied(), "{dues:?} {slots:?} {taken:b}: {at}");
            if taken >> at & 1 == 1 {
                deadlines.drop_first(None);
                sorted.remove(0);
            }
        }
        for left in sorted {
            assert_eq!(deadlines.first(), Some(left), "{dues:?} {slots:?} {taken:b}");
            deadlines.drop_first(None);
        }
        assert_eq!((deadlines.first(), deadlines.others()), (None, 0));
    }

    #[test]
    fn entries_come_in_order_however_they_were_armed() {
        for code in 0..4_u64.pow(5) {
            let dues = [0, 2, 4, 6, 8].map(|shift| 1 + (code >> shift) % 4);
            for taken in 0..1 << 5 {
                compare_order(&dues, &[0, 1, 2, 3, 4], taken);
                compare_order(&dues, &[4, 3, 2, 1, 0], taken);
            }
        }
    }

    /// An entry after all others is appended to the list, also when the list is empty and when another entry was the
    /// nearest before.
    #[test]
    fn an_entry_after_all_others_is_not_in_the_heap() {
        let mut deadlines = Deadlines::new();
        for slot in 0..100_u32 {
            let due = Time(u64::from(slot));
            deadlines.arm(&mut Armed::NOT.clone(), due, IdKey::from_parts(0, slot, 1).unwrap());
            assert!(deadlines.heap.is_empty() && deadlines.latest == due, "{slot}");
            if slot % 3 == 0 {
                deadlines.drop_first(None);
            }
        }
        while deadlines.first().is_some() {
            deadlines.drop_first(None);
        }
        // The time of the last entry does not outlast it.
        deadlines.arm(&mut Armed::NOT.clone(), Time(5), IdKey::from_parts(0, 0, 1).unwrap());
        assert_eq!(deadlines.latest, Time(5));
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
