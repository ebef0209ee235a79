//! Deadlines: a binary heap in which each id stands at most once and knows its place, so that a deadline is dropped
//! when its operation ends instead of lingering until it passes.

use alloc::vec::Vec;

use crate::key::IdKey;
use crate::time::Time;

/// Where an entry went: to be noted in the id.
pub(crate) type Moved<'a> = &'a mut dyn FnMut(IdKey, Option<u32>);

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

    /// Sets the deadline of an id that stands at `place`; [`Time::NEVER`] removes it.
    pub(crate) fn set(&mut self, place: Option<u32>, due: Time, id: IdKey, moved: Moved<'_>) {
        match place.map(|place| place as usize) {
            None if due == Time::NEVER => {}
            None => {
                self.heap.push((due, id));
                self.settle(self.heap.len() - 1, moved);
            }
            Some(at) if due == Time::NEVER => {
                let last = self.heap.len() - 1;
                self.heap.swap_remove(at);
                moved(id, None);
                if at != last {
                    self.settle(at, moved);
                }
            }
            Some(at) => {
                self.heap[at].0 = due;
                self.settle(at, moved);
            }
        }
    }

    /// Moves the entry at `at` to where it belongs and tells every entry that changed its place.
    fn settle(&mut self, mut at: usize, moved: Moved<'_>) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2, moved);
            at = (at - 1) / 2;
        }
        while let Some(child) = (2 * at + 1..(2 * at + 3).min(self.heap.len())).min_by_key(|&child| self.heap[child])
            && self.heap[child] < self.heap[at]
        {
            self.swap(at, child, moved);
            at = child;
        }
        moved(self.heap[at].1, Some(at as u32));
    }

    fn swap(&mut self, a: usize, b: usize, moved: Moved<'_>) {
        self.heap.swap(a, b);
        moved(self.heap[a].1, Some(a as u32));
        moved(self.heap[b].1, Some(b as u32));
    }
}
