//! A slab whose keys carry a generation: a key to what is gone finds nothing.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::num::NonZeroU32;

use slab::Slab;

use crate::key::Key;

#[derive(Clone, Debug)]
pub(crate) struct Arena<K, T> {
    slab: Slab<T>,
    /// The generation of each slot that was ever used: of its tenant, or of the next one.
    generations: Vec<NonZeroU32>,
    limit: usize,
    key: PhantomData<fn() -> K>,
}

impl<K: Key, T> Arena<K, T> {
    pub(crate) fn new(limit: u32) -> Self {
        Arena { slab: Slab::new(), generations: Vec::new(), limit: limit as usize, key: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The key that the next insertion gives; `None` at the limit.
    pub(crate) fn next_key(&self) -> Option<K> {
        if self.slab.len() >= self.limit {
            return None;
        }
        let index = self.slab.vacant_key();
        let generation = self.generations.get(index).copied().unwrap_or(NonZeroU32::MIN);
        u32::try_from(index).ok().map(|index| K::new(index, generation))
    }

    /// `None`, and the value dropped, at the limit.
    pub(crate) fn insert(&mut self, value: T) -> Option<K> {
        let key = self.next_key()?;
        let index = self.slab.insert(value);
        if index == self.generations.len() {
            self.generations.push(NonZeroU32::MIN);
        }
        Some(key)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn get(&self, key: K) -> Option<&T> {
        if self.generations.get(key.index()) == Some(&key.generation()) { self.slab.get(key.index()) } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        if self.generations.get(key.index()) == Some(&key.generation()) { self.slab.get_mut(key.index()) } else { None }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        self.get(key)?;
        let generation = &mut self.generations[key.index()];
        // After 2^32 tenants of one slot a key could come back; no id lives that long.
        *generation = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.slab.try_remove(key.index())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slab.iter().map(|(index, value)| (K::new(index as u32, self.generations[index]), value))
    }
}

impl<K: Key, T: PartialEq> PartialEq for Arena<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit
            && self.generations == other.generations
            && self.slab.vacant_key() == other.slab.vacant_key()
            && self.slab.iter().eq(other.slab.iter())
    }
}

impl<K: Key, T: Eq> Eq for Arena<K, T> {}

impl<K, T: Hash> Hash for Arena<K, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.generations.hash(state);
        for (index, value) in &self.slab {
            (index, value).hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IdKey;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut arena: Arena<IdKey, u8> = Arena::new(1);
        let first = arena.insert(1).unwrap();
        assert_eq!(arena.next_key(), None);
        assert_eq!(arena.insert(2), None);
        assert_eq!(arena.remove(first), Some(1));
        let foretold = arena.next_key().unwrap();
        let second = arena.insert(3).unwrap();
        assert_eq!(foretold, second);
        assert_ne!(first, second);
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&3)));
        assert_eq!(arena.get_mut(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(IdKey::from_bits(second.to_bits()), Some(second));
    }
}
