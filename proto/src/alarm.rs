//! Deadlines: a heap in which each id stands at most once and knows its place, so that a deadline is dropped when its
//! operation ends instead of lingering until it passes.

use alloc::vec::Vec;

use crate::key::{IdKey, Key};
use crate::time::Time;

/// Children of a place: with four the heap is half as high as with two, and most of what a step costs is to note in an id
/// that its entry has moved.
const CHILDREN: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Alarms {
    heap: Vec<(Time, IdKey)>,
}

impl Alarms {
    pub(crate) fn first(&self) -> Option<(Time, IdKey)> {
        self.heap.first().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The entry at a place.
    pub(crate) fn at(&self, place: u32) -> Option<(Time, IdKey)> {
        self.heap.get(place as usize).copied()
    }

    /// Sets the deadline of an id that stands at `place`; [`Time::NEVER`] removes it. `moved` is told where an entry went,
    /// to note it in the id.
    pub(crate) fn set(&mut self, place: Option<u32>, due: Time, id: IdKey, mut moved: impl FnMut(IdKey, Option<u32>)) {
        match place.map(|place| place as usize) {
            None if due == Time::NEVER => {}
            None => {
                self.heap.push((due, id));
                self.settle(self.heap.len() - 1, moved);
            }
            Some(at) if due == Time::NEVER => {
                self.heap.swap_remove(at);
                moved(id, None);
                if at < self.heap.len() {
                    self.settle(at, moved);
                }
            }
            Some(at) => {
                self.heap[at].0 = due;
                self.settle(at, moved);
            }
        }
    }

    /// Moves the entry at `at` to where it belongs: those in its way move by one place each.
    fn settle(&mut self, mut at: usize, mut moved: impl FnMut(IdKey, Option<u32>)) {
        let entry = self.heap[at];
        while let Some(parent) = at.checked_sub(1).map(|before| before / CHILDREN)
            && rank(entry) < rank(self.heap[parent])
        {
            self.put(at, self.heap[parent], &mut moved);
            at = parent;
        }
        while let Some(child) = self.first_child(at)
            && rank(self.heap[child]) < rank(entry)
        {
            self.put(at, self.heap[child], &mut moved);
            at = child;
        }
        self.put(at, entry, &mut moved);
    }

    /// The child of a place that comes before its siblings.
    fn first_child(&self, at: usize) -> Option<usize> {
        let begin = CHILDREN * at + 1;
        let children = self.heap.get(begin..)?.iter().take(CHILDREN);
        children.enumerate().min_by_key(|&(_, entry)| rank(*entry)).map(|(nth, _)| begin + nth)
    }

    fn put(&mut self, at: usize, entry: (Time, IdKey), moved: &mut impl FnMut(IdKey, Option<u32>)) {
        self.heap[at] = entry;
        moved(entry.1, Some(at as u32));
    }
}

/// The order of `(Time, IdKey)`, in one number: comparing those is most of what moving an entry takes.
fn rank((due, id): (Time, IdKey)) -> u128 {
    u128::from(due.0) << 64 | (id.index() as u128) << 32 | u128::from(id.generation().get())
}
