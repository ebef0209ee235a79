//! A table of a device's objects by the core's keys.

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::key::Key;

/// Entries by key, found in constant time. A key of another generation or of another core finds nothing.
///
/// A core removes some ids and channels that the device could not destroy ([`Fault::Leak`](crate::Fault::Leak)), and
/// uses their slots again. [`KeyTable::reserve`] then sets the old entry aside: it moves the entry out of its slot, and
/// the old key still finds it. At most [`KeyTable::ASIDE_MAX`] entries are set aside.
///
/// The memory is proportional to the highest slot in use. A core numbers its slots densely from 0, and keys have 2^24
/// slots.
#[derive(Clone, Debug)]
pub struct KeyTable<K, T> {
    slots: Vec<Option<(K, T)>>,
    aside: Vec<(K, T)>,
}

impl<K, T> Default for KeyTable<K, T> {
    fn default() -> Self {
        KeyTable { slots: Vec::new(), aside: Vec::new() }
    }
}

impl<K: Key, T> KeyTable<K, T> {
    /// The maximum number of entries that are set aside.
    pub const ASIDE_MAX: usize = 64;

    /// Prepares the slot of a key: the next [`KeyTable::insert`] with this key succeeds. An entry with an earlier key
    /// of the slot is set aside.
    ///
    /// # Errors
    /// `EINVAL` if the slot is taken by this key, a later one, or one of another core; `EBUSY` if
    /// [`KeyTable::ASIDE_MAX`] entries are set aside already; `ENOMEM`.
    pub fn reserve(&mut self, key: K) -> Result<(), Errno> {
        match self.slots.get(key.slot()) {
            Some(None) => Ok(()),
            Some(Some(_)) => self.set_aside(key),
            None => self.grow(key.slot()),
        }
    }

    fn set_aside(&mut self, key: K) -> Result<(), Errno> {
        if self.occupant(key).is_none() {
            return Err(Errno::EINVAL);
        }
        if self.aside.len() >= Self::ASIDE_MAX {
            return Err(Errno::EBUSY);
        }
        self.aside.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.aside.extend(self.slots[key.slot()].take());
        Ok(())
    }

    fn grow(&mut self, slot: usize) -> Result<(), Errno> {
        let len = slot + 1;
        self.slots.try_reserve(len - self.slots.len()).map_err(|_| Errno::ENOMEM)?;
        self.slots.resize_with(len, || None);
        Ok(())
    }

    /// Inserts an entry into a slot that [`KeyTable::reserve`] has prepared.
    ///
    /// # Errors
    /// The value, if the slot is not prepared.
    pub fn insert(&mut self, key: K, value: T) -> Result<(), T> {
        match self.slots.get_mut(key.slot()) {
            Some(slot @ None) => {
                *slot = Some((key, value));
                Ok(())
            }
            Some(Some(_)) | None => Err(value),
        }
    }

    /// Whether the slot of a key exists and is vacant, so that [`KeyTable::reserve`] has no effect.
    #[must_use]
    pub fn has_room(&self, key: K) -> bool {
        matches!(self.slots.get(key.slot()), Some(None))
    }

    /// Returns the key of the entry that [`KeyTable::reserve`] with this key would set aside.
    #[must_use]
    pub fn occupant(&self, key: K) -> Option<K> {
        let (old, _) = self.slots.get(key.slot())?.as_ref()?;
        key.is_later(*old).then_some(*old)
    }

    /// Returns the key of the entry in the slot of this key, if it is of the same core.
    #[must_use]
    pub fn at_slot(&self, key: K) -> Option<K> {
        let (found, _) = self.slots.get(key.slot())?.as_ref()?;
        (*found == key || found.is_later(key) || key.is_later(*found)).then_some(*found)
    }

    /// Returns the entry of a key, set aside or not.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&T> {
        self.get_filed(key).or_else(|| self.get_aside(key))
    }

    #[cold]
    fn get_aside(&self, key: K) -> Option<&T> {
        self.aside.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns the entry of a key, unless it is set aside.
    #[must_use]
    pub fn get_filed(&self, key: K) -> Option<&T> {
        match self.slots.get(key.slot()) {
            Some(Some((found, value))) if *found == key => Some(value),
            Some(Some(_) | None) | None => None,
        }
    }

    /// Returns the entry of a key, set aside or not.
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        match self.slots.get_mut(key.slot()) {
            Some(Some((found, value))) if *found == key => Some(value),
            Some(Some(_) | None) | None => Self::aside_mut(&mut self.aside, key),
        }
    }

    #[cold]
    fn aside_mut(aside: &mut [(K, T)], key: K) -> Option<&mut T> {
        aside.iter_mut().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Removes and returns the entry of a key, set aside or not.
    pub fn remove(&mut self, key: K) -> Option<T> {
        let belongs = |slot: &&mut Option<(K, T)>| slot.as_ref().is_some_and(|(found, _)| *found == key);
        if let Some(slot) = self.slots.get_mut(key.slot()).filter(belongs) {
            return slot.take().map(|(_, value)| value);
        }
        let at = self.aside.iter().position(|(found, _)| *found == key)?;
        Some(self.aside.swap_remove(at).1)
    }

    /// Returns the keys of the entries that are set aside.
    #[must_use]
    pub fn aside(&self) -> impl ExactSizeIterator<Item = K> + '_ {
        self.aside.iter().map(|(key, _)| *key)
    }

    /// Returns all entries; those that are set aside come last.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().flatten().chain(&self.aside).map(|(key, value)| (*key, value))
    }

    /// The number of entries, those that are set aside included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IdKey;

    fn key(slot: u32, generation: u32) -> IdKey {
        IdKey::from_parts(0, slot, generation).unwrap()
    }

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut table = KeyTable::default();
        table.reserve(key(3, 2)).unwrap();
        assert_eq!((table.has_room(key(3, 2)), table.has_room(key(4, 1))), (true, false));
        table.insert(key(3, 2), 'a').unwrap();
        assert!(!table.has_room(key(3, 3)), "the slot is taken");
        assert_eq!((table.get(key(3, 2)), table.get(key(3, 3))), (Some(&'a'), None));
        assert_eq!((table.get_filed(key(3, 2)), table.get_filed(key(3, 3))), (Some(&'a'), None));
        assert_eq!(table.get_filed(key(9, 1)), None);
        assert_eq!([1, 2, 3].map(|generation| table.at_slot(key(3, generation))), [Some(key(3, 2)); 3]);
        assert_eq!((table.at_slot(key(2, 2)), table.at_slot(IdKey::from_parts(1, 3, 2).unwrap())), (None, None));
        assert_eq!(table.get_mut(key(3, 2)), Some(&mut 'a'));
        assert_eq!(table.get_mut(key(2, 2)), None);
        assert_eq!(table.remove(key(3, 3)), None);
        assert_eq!(table.reserve(key(3, 2)), Err(Errno::EINVAL), "it is taken");
        assert_eq!(table.reserve(key(3, 1)), Err(Errno::EINVAL), "by a later one");
        assert_eq!(table.insert(key(3, 3), 'b'), Err('b'), "without room");
        assert_eq!(table.remove(key(3, 2)), Some('a'));
        assert_eq!((table.reserve(key(3, 3)), table.len(), table.is_empty()), (Ok(()), 0, true));
    }

    #[test]
    fn an_entry_that_its_core_has_forgotten_makes_room() {
        let mut table = KeyTable::default();
        for generation in 1..=3 {
            table.reserve(key(0, generation)).unwrap();
            table.insert(key(0, generation), generation).unwrap();
        }
        assert!(table.aside().eq([key(0, 1), key(0, 2)]));
        assert_eq!((table.get_filed(key(0, 1)), table.get_filed(key(0, 3))), (None, Some(&3)));
        assert_eq!((table.len(), table.is_empty(), table.get(key(0, 1))), (3, false, Some(&1)));
        assert_eq!(table.get_mut(key(0, 2)), Some(&mut 2));
        assert_eq!(table.occupant(key(0, 4)), Some(key(0, 3)));
        assert_eq!((table.remove(key(0, 1)), table.remove(key(0, 1))), (Some(1), None));
        assert!(table.iter().eq([(key(0, 3), &3), (key(0, 2), &2)]));
    }

    #[test]
    fn as_many_as_are_kept_are_set_aside_and_no_more() {
        type Kept = KeyTable<IdKey, ()>;
        let mut table = Kept::default();
        for generation in 1..=Kept::ASIDE_MAX as u32 + 1 {
            table.reserve(key(0, generation)).unwrap();
            table.insert(key(0, generation), ()).unwrap();
        }
        let next = key(0, Kept::ASIDE_MAX as u32 + 2);
        assert_eq!(table.aside().len(), Kept::ASIDE_MAX);
        assert_eq!(table.reserve(next), Err(Errno::EBUSY));
        assert_eq!(table.reserve(key(1, 1)), Ok(()), "other slots are free");
        table.remove(key(0, 1)).unwrap();
        assert_eq!(table.reserve(next), Ok(()));
    }

    #[test]
    fn a_key_of_another_core_finds_nothing_and_makes_no_room() {
        let mut table = KeyTable::default();
        let (own, foreign) = (IdKey::from_parts(1, 3, 1).unwrap(), IdKey::from_parts(2, 3, 2).unwrap());
        table.reserve(own).unwrap();
        table.insert(own, 'a').unwrap();
        assert_eq!((table.get(foreign), table.occupant(foreign)), (None, None));
        assert_eq!(table.reserve(foreign), Err(Errno::EINVAL));
        assert_eq!(table.get_mut(foreign), None);
        assert_eq!(table.remove(foreign), None);
        assert_eq!(table.get(own), Some(&'a'));
    }
}
