//! A queue that usually holds one entry. The first entry is stored outside the ring, so that adding and taking it costs
//! few instructions.

use alloc::collections::VecDeque;
use core::hash::{Hash, Hasher};

#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// `None` only if `others` is empty.
    first: Option<T>,
    others: VecDeque<T>,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Queue { first: None, others: VecDeque::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// Empties a queue with one entry.
    #[inline]
    pub(super) fn take_only(&mut self) {
        self.first = None;
    }

    #[inline]
    pub(super) fn push_back(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.others.push_back(entry);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        if self.others.is_empty() { self.first.take() } else { self.pop_and_move_up() }
    }

    #[inline(never)]
    fn pop_and_move_up(&mut self) -> Option<T> {
        core::mem::replace(&mut self.first, self.others.pop_front())
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.others.retain(&keep);
        if !self.first.as_ref().is_some_and(keep) {
            self.first = self.others.pop_front();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T: PartialEq> PartialEq for Queue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for Queue<T> {}

impl<T: Hash> Hash for Queue<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn it_is_a_queue() {
        let mut queue = Queue::new();
        let mut plain = VecDeque::new();
        for step in 0..2000_u32 {
            // The queue is mostly short and sometimes has up to ten entries.
            if step * 7 % 11 < 5 + step / 100 % 3 {
                queue.push_back(step);
                plain.push_back(step);
            } else {
                assert_eq!(queue.pop_front(), plain.pop_front());
            }
            if step % 97 == 0 {
                queue.retain(|entry| entry % 3 > 0);
                plain.retain(|entry| entry % 3 > 0);
            }
            assert_eq!((queue.is_empty(), queue.front()), (plain.is_empty(), plain.front()));
            if step % 31 == 0 && queue.len() == 1 {
                queue.take_only();
                plain.clear();
            }
            assert_eq!(queue.iter().collect::<Vec<_>>(), plain.iter().collect::<Vec<_>>());
            let mut longer = queue.clone();
            assert!(longer == queue);
            longer.push_back(step);
            assert!(longer != queue);
        }
    }
}
