//! A slab whose keys carry a generation: a key to what is gone finds nothing.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::num::NonZeroU32;

use crate::key::Key;

#[derive(Clone, Debug)]
pub(crate) struct Arena<K, T> {
    slots: Vec<Slot<T>>,
    /// Slots without a tenant; the last is the next to be used.
    vacant: Vec<u32>,
    limit: usize,
    key: PhantomData<fn() -> K>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot<T> {
    /// Of the tenant, or of the next one.
    generation: NonZeroU32,
    tenant: Option<T>,
}

impl<K: Key, T> Arena<K, T> {
    pub(crate) fn new(limit: u32) -> Self {
        Arena { slots: Vec::new(), vacant: Vec::new(), limit: limit as usize, key: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// The key that the next insertion gives; `None` at the limit.
    pub(crate) fn next_key(&self) -> Option<K> {
        if self.len() >= self.limit {
            return None;
        }
        let index = self.vacant.last().map_or(self.slots.len(), |&index| index as usize);
        let generation = self.slots.get(index).map_or(NonZeroU32::MIN, |slot| slot.generation);
        u32::try_from(index).ok().map(|index| K::new(index, generation))
    }

    /// `None`, and the value dropped, at the limit.
    pub(crate) fn insert(&mut self, value: T) -> Option<K> {
        let key = self.next_key()?;
        self.vacant.pop();
        match self.slots.get_mut(key.index()) {
            Some(slot) => slot.tenant = Some(value),
            None => self.slots.push(Slot { generation: key.generation(), tenant: Some(value) }),
        }
        Some(key)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        self.slots.get(key.index()).filter(|slot| slot.generation == key.generation())?.tenant.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation())?.tenant.as_mut()
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let slot = self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation())?;
        let tenant = slot.tenant.take()?;
        // After 2^32 tenants of one slot a key could come back; no id lives that long.
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.vacant.push(key.index() as u32);
        Some(tenant)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let tenants = self.slots.iter().enumerate();
        tenants.filter_map(|(index, slot)| Some((K::new(index as u32, slot.generation), slot.tenant.as_ref()?)))
    }
}

impl<K: Key, T: PartialEq> PartialEq for Arena<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit && self.slots == other.slots && self.vacant.last() == other.vacant.last()
    }
}

impl<K: Key, T: Eq> Eq for Arena<K, T> {}

impl<K, T: Hash> Hash for Arena<K, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slots.hash(state);
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
