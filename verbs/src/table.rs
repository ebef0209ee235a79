//! What the device files under the core's keys.

use cmid_proto::{ChannelKey, Errno, IdKey};

/// A key of the core.
pub(crate) trait Key: Copy {
    fn bits(self) -> u64;
    fn slot(self) -> usize;
}

impl Key for IdKey {
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn slot(self) -> usize {
        IdKey::slot(self)
    }
}

impl Key for ChannelKey {
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn slot(self) -> usize {
        ChannelKey::slot(self)
    }
}

/// Entries by key, found in constant time; a key of another generation or of another core finds nothing.
///
/// It trusts that the core numbers its slots densely from 0: memory is in proportion to the highest slot in use. A key
/// tells 2^24 of them apart.
pub(crate) struct Table<T> {
    slots: Vec<Option<(u64, T)>>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Table { slots: Vec::new() }
    }

    /// Makes sure that [`Table::insert`] with this key will succeed.
    ///
    /// # Errors
    /// `EINVAL` if the slot is taken, `ENOMEM` if there is no memory for it.
    pub(crate) fn reserve(&mut self, key: impl Key) -> Result<(), Errno> {
        let index = key.slot();
        match self.slots.get(index) {
            Some(Some(_)) => Err(Errno::EINVAL),
            Some(None) => Ok(()),
            None => {
                let more = index + 1 - self.slots.len();
                self.slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
                self.slots.resize_with(index + 1, || None);
                Ok(())
            }
        }
    }

    /// Files an entry in a slot that [`Table::reserve`] made.
    pub(crate) fn insert(&mut self, key: impl Key, value: T) {
        debug_assert!(matches!(self.slots.get(key.slot()), Some(None)));
        if let Some(slot) = self.slots.get_mut(key.slot()) {
            *slot = Some((key.bits(), value));
        }
    }

    pub(crate) fn get(&self, key: impl Key) -> Option<&T> {
        match self.slots.get(key.slot()) {
            Some(Some((bits, value))) if *bits == key.bits() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: impl Key) -> Option<&mut T> {
        match self.slots.get_mut(key.slot()) {
            Some(Some((bits, value))) if *bits == key.bits() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: impl Key) -> Option<T> {
        self.get(key)?;
        self.slots[key.slot()].take().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32, generation: u32) -> IdKey {
        IdKey::from_parts(0, slot, generation).unwrap()
    }

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut table = Table::new();
        table.reserve(key(3, 1)).unwrap();
        table.insert(key(3, 1), 'a');
        assert_eq!(table.get(key(3, 1)), Some(&'a'));
        assert_eq!(table.get(key(3, 2)), None);
        assert_eq!(table.get_mut(key(2, 1)), None);
        assert_eq!(table.remove(key(3, 2)), None);
        assert_eq!(table.reserve(key(3, 2)), Err(Errno::EINVAL));
        assert_eq!(table.remove(key(3, 1)), Some('a'));
        assert_eq!(table.reserve(key(3, 2)), Ok(()));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_key_of_another_core_finds_nothing() {
        let mut table = Table::new();
        let (own, foreign) = (IdKey::from_parts(1, 3, 1).unwrap(), IdKey::from_parts(2, 3, 1).unwrap());
        table.reserve(own).unwrap();
        table.insert(own, 'a');
        assert_eq!(table.get(foreign), None);
        assert_eq!(table.get_mut(foreign), None);
        assert_eq!(table.remove(foreign), None);
        assert_eq!(table.get(own), Some(&'a'));
    }
}
