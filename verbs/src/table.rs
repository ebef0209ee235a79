//! What the device files under the core's keys.

use cmid_proto::{ChannelKey, Errno, IdKey};

/// A key of the core, taken apart: its lower half is a small index, its upper half a generation.
pub(crate) trait Key: Copy {
    fn bits(self) -> u64;
}

impl Key for IdKey {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Key for ChannelKey {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Entries by key, found in constant time; a key of another generation finds nothing.
///
/// It trusts that the core numbers its slots densely from 0, as `slab` does: memory is in proportion to the highest
/// index in use.
pub(crate) struct Table<T> {
    slots: Vec<Option<(u64, T)>>,
}

impl<T> Table<T> {
    /// More slots than any core has; protects against an index that no core made.
    const MAX: usize = 1 << 24;

    pub(crate) const fn new() -> Self {
        Table { slots: Vec::new() }
    }

    /// Makes sure that [`Table::insert`] with this key will succeed.
    ///
    /// # Errors
    /// `EINVAL` if the slot is taken or no core would use it, `ENOMEM` if there is no memory for it.
    pub(crate) fn reserve(&mut self, key: impl Key) -> Result<(), Errno> {
        let index = index(key);
        if index >= Self::MAX {
            return Err(Errno::EINVAL);
        }
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
        debug_assert!(matches!(self.slots.get(index(key)), Some(None)));
        if let Some(slot) = self.slots.get_mut(index(key)) {
            *slot = Some((key.bits(), value));
        }
    }

    pub(crate) fn get(&self, key: impl Key) -> Option<&T> {
        match self.slots.get(index(key)) {
            Some(Some((bits, value))) if *bits == key.bits() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: impl Key) -> Option<&mut T> {
        match self.slots.get_mut(index(key)) {
            Some(Some((bits, value))) if *bits == key.bits() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: impl Key) -> Option<T> {
        self.get(key)?;
        self.slots[index(key)].take().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

fn index(key: impl Key) -> usize {
    (key.bits() & u64::from(u32::MAX)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64, generation: u64) -> IdKey {
        IdKey::from_bits(generation << 32 | index).unwrap()
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
    fn an_index_that_no_core_has_is_refused() {
        assert_eq!(Table::<()>::new().reserve(key(u64::from(u32::MAX), 1)), Err(Errno::EINVAL));
    }
}
