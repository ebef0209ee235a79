//! The application's data of ids.

use alloc::vec::Vec;
use core::fmt;

use crate::key::IdKey;

/// Values by id, found in constant time by the slot of the key. A key of an earlier generation or of another core finds
/// nothing. Memory is proportional to the highest slot.
///
/// ```
/// use cmid_proto::{IdKey, IdMap};
///
/// let (first, reused) = (IdKey::from_parts(0, 3, 1).ok_or("no key")?, IdKey::from_parts(0, 3, 2).ok_or("no key")?);
/// let mut names = IdMap::new();
/// names.insert(first, "a");
/// assert_eq!((names.get(first), names.get(reused)), (Some(&"a"), None));
/// assert_eq!(names.insert(reused, "b"), Some((first, "a")));
/// # Ok::<(), &str>(())
/// ```
pub struct IdMap<T> {
    slots: Vec<Option<(IdKey, T)>>,
    len: usize,
}

impl<T> IdMap<T> {
    /// Creates an empty map. Does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        IdMap { slots: Vec::new(), len: 0 }
    }

    /// Stores the value of an id. Returns the previous value of the slot and its id: the same id, or an earlier one
    /// that is gone.
    pub fn insert(&mut self, id: IdKey, value: T) -> Option<(IdKey, T)> {
        let slot = id.slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let before = self.slots.get_mut(slot).and_then(|stored| stored.replace((id, value)));
        self.len += usize::from(before.is_none());
        before
    }

    /// Returns the value of an id.
    #[must_use]
    pub fn get(&self, id: IdKey) -> Option<&T> {
        match self.slots.get(id.slot()) {
            Some(Some((key, value))) if *key == id => Some(value),
            Some(_) | None => None,
        }
    }

    /// Returns the value of an id.
    #[must_use]
    pub fn get_mut(&mut self, id: IdKey) -> Option<&mut T> {
        match self.slots.get_mut(id.slot()) {
            Some(Some((key, value))) if *key == id => Some(value),
            Some(_) | None => None,
        }
    }

    /// Removes and returns the value of an id.
    pub fn remove(&mut self, id: IdKey) -> Option<T> {
        let (_, value) = self.slots.get_mut(id.slot())?.take_if(|(key, _)| *key == id)?;
        self.len -= 1;
        Some(value)
    }

    /// Returns the ids and their values, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (IdKey, &T)> {
        self.slots.iter().flatten().map(|(id, value)| (*id, value))
    }

    /// Returns the number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for IdMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn key(core: u16, slot: u32, generation: u32) -> IdKey {
        IdKey::from_parts(core, slot, generation).expect("a key")
    }

    #[test]
    fn only_the_key_itself_finds_its_value() {
        let mut map = IdMap::new();
        assert_eq!(map.insert(key(1, 5, 2), 'a'), None);
        for other in [key(1, 5, 1), key(1, 5, 3), key(0, 5, 2), key(1, 4, 2), key(1, 6, 2)] {
            assert_eq!(map.get(other), None, "{other}");
            assert_eq!(map.get_mut(other), None, "{other}");
            assert_eq!(map.remove(other), None, "{other}");
        }
        *map.get_mut(key(1, 5, 2)).expect("stored") = 'b';
        assert_eq!((map.get(key(1, 5, 2)), map.len()), (Some(&'b'), 1));
        assert_eq!(map.remove(key(1, 5, 2)), Some('b'));
        assert!(map.is_empty() && map.remove(key(1, 5, 2)).is_none());
    }

    #[test]
    fn a_later_id_takes_the_slot() {
        let mut map = IdMap::default();
        map.insert(key(0, 0, 1), 1);
        map.insert(key(0, 2, 1), 2);
        assert_eq!(map.insert(key(0, 2, 2), 3), Some((key(0, 2, 1), 2)));
        assert_eq!((map.len(), map.is_empty()), (2, false));
        assert_eq!(format!("{map:?}"), "{id0: 1, id2.2: 3}");
    }
}
