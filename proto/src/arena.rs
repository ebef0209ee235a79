//! A slab with keys that contain a generation and the number of their core. A stale or foreign key finds nothing.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::key::Key;

/// Slots are reused last in, first out. A slot without generations left is never used again, and its memory stays
/// allocated. When no slot is left, nothing more can be inserted.
#[derive(Clone, Debug)]
pub(crate) struct Arena<K, T> {
    slots: Vec<Slot<K, T>>,
    /// The next keys of the vacant slots; the last one is used next.
    vacant: Vec<K>,
    /// The key of the next insertion.
    next: Option<K>,
    len: usize,
    limit: usize,
    /// The number of the core in the keys.
    core: u16,
}

#[derive(Clone, Debug)]
struct Slot<K, T> {
    /// The key of the value; `None` in a vacant slot. One comparison validates a key.
    key: Option<K>,
    /// In a vacant slot: the rest of the last value.
    tenant: T,
}

impl<K: Key, T> Arena<K, T> {
    pub(crate) fn new(limit: u32, core: u16) -> Self {
        let mut arena =
            Arena { slots: Vec::new(), vacant: Vec::new(), next: None, len: 0, limit: limit as usize, core };
        arena.find_next();
        arena
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the key of the next insertion; `None` at the limit.
    pub(crate) fn next_key(&self) -> Option<K> {
        self.next
    }

    fn find_next(&mut self) {
        self.next = if self.len >= self.limit {
            None
        } else {
            self.vacant.last().copied().or_else(|| K::first(self.core, self.slots.len()))
        };
    }

    /// Inserts a value and returns its key. At the limit, returns `None` and drops the value.
    pub(crate) fn insert(&mut self, value: T) -> Option<K> {
        let key = self.next?;
        self.vacant.pop();
        match self.slots.get_mut(key.slot()) {
            Some(slot) => {
                slot.key = Some(key);
                slot.tenant = value;
            }
            None => self.slots.push(Slot { key: Some(key), tenant: value }),
        }
        self.len += 1;
        self.find_next();
        Some(key)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn get(&self, key: K) -> Option<&T> {
        self.slots.get(key.slot()).filter(|slot| slot.key == Some(key)).map(|slot| &slot.tenant)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.slots.get_mut(key.slot()).filter(|slot| slot.key == Some(key)).map(|slot| &mut slot.tenant)
    }

    /// Removes a value and returns it unchanged.
    pub(crate) fn remove(&mut self, key: K) -> Option<&T> {
        let slot = self.slots.get_mut(key.slot()).filter(|slot| slot.key == Some(key))?;
        slot.key = None;
        if let Some(next) = key.next() {
            self.vacant.push(next);
        }
        self.len -= 1;
        self.find_next();
        self.slots.get(key.slot()).map(|slot| &slot.tenant)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.tenants().flatten()
    }

    /// Returns the number of slots, vacant ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the key of the value in a slot; `None` if it is vacant.
    pub(crate) fn key_at(&self, slot: usize) -> Option<K> {
        self.slots.get(slot)?.key
    }

    /// Returns the slots in order, with `None` for a vacant one.
    fn tenants(&self) -> impl Iterator<Item = Option<(K, &T)>> {
        self.slots.iter().map(|slot| Some((slot.key?, &slot.tenant)))
    }
}

impl<K: Key, T: PartialEq> PartialEq for Arena<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit && self.next == other.next && self.tenants().eq(other.tenants())
    }
}

impl<K: Key, T: Eq> Eq for Arena<K, T> {}

impl<K: Key + Hash, T: Hash> Hash for Arena<K, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tenants().for_each(|tenant| tenant.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IdKey;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut arena: Arena<IdKey, u8> = Arena::new(1, 0);
        let first = arena.insert(1).unwrap();
        assert_eq!(arena.next_key(), None);
        assert_eq!(arena.insert(2), None);
        assert_eq!(arena.remove(first), Some(&1));
        let foretold = arena.next_key().unwrap();
        let second = arena.insert(3).unwrap();
        assert_eq!(foretold, second);
        assert_ne!(first, second);
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&3)));
        assert_eq!(arena.get_mut(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(IdKey::from_bits(second.to_bits()), Some(second));
    }

    #[test]
    fn a_key_of_another_core_finds_nothing() {
        let [mut ours, mut theirs] = [3, 4].map(|core| Arena::<IdKey, u8>::new(1, core));
        let (our_key, their_key) = (ours.insert(1).unwrap(), theirs.insert(2).unwrap());
        assert_eq!((our_key.slot(), our_key.generation()), (their_key.slot(), their_key.generation()));
        assert_eq!((ours.get(our_key), ours.get(their_key)), (Some(&1), None));
        assert_eq!(ours.get_mut(their_key), None);
        assert_eq!(ours.remove(their_key), None);
        assert_eq!(ours.len(), 1);
    }

    #[test]
    fn arenas_are_equal_if_their_limits_next_keys_and_values_are() {
        let mut arena: Arena<IdKey, u8> = Arena::new(2, 0);
        assert_eq!(arena, Arena::new(2, 0));
        assert_ne!(arena, Arena::new(1, 0));
        let first = arena.insert(1).unwrap();
        // The limits are equal; the values and next keys are not.
        assert_ne!(arena, Arena::new(2, 0));
        let mut full = arena.clone();
        full.insert(2).unwrap();
        let mut other = full.clone();
        *other.get_mut(first).unwrap() = 3;
        // They differ in one value.
        assert_ne!(full, other);
    }

    /// Returns an arena with a slot that has one generation left.
    fn worn(slot: u32, limit: u32) -> Arena<IdKey, u8> {
        let mut arena = Arena::new(limit, 3);
        (0..=slot).for_each(|_| assert!(arena.insert(0).is_some()));
        let last = IdKey::from_parts(3, slot, (1 << 28) - 1);
        arena.remove(IdKey::from_parts(3, slot, 1).unwrap());
        arena.vacant = last.into_iter().collect();
        arena.find_next();
        arena
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let mut arena = worn(0, 2);
        let last = arena.insert(7).unwrap();
        assert_eq!((last.slot(), last.generation()), (0, (1 << 28) - 1));
        assert_eq!((arena.get(last), arena.len()), (Some(&7), 1));
        assert_eq!(arena.remove(last), Some(&7));
        assert_eq!((arena.get(last), arena.len()), (None, 0));
        // A slot without generations does not count against the limit, which is on values.
        let others = [arena.insert(8), arena.insert(9)].map(Option::unwrap);
        assert_eq!(others.map(IdKey::slot), [1, 2]);
        assert_eq!(others.map(IdKey::generation), [1, 1]);
        assert_eq!((arena.next_key(), arena.len()), (None, 2));
        // Occupied slots are not affected.
        arena.remove(others[0]);
        assert_eq!(arena.next_key(), IdKey::from_parts(3, 1, 2));
        assert_eq!(arena.iter().map(|(key, _)| key).collect::<Vec<_>>(), [others[1]]);
    }
}
