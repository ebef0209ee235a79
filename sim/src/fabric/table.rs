//! A map with lookup in constant time.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// An unordered map that can only be iterated in the order of its keys, so that runs are deterministic for a seed.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V>(FxHashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table(FxHashMap::default())
    }
}

impl<K: Copy + Ord + Hash, V> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Returns the value of a key. Inserts a default one if there is none.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub(crate) fn retain(&mut self, stays: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(stays);
    }

    /// Returns the sum of a number of each value.
    pub(crate) fn sum(&self, of: impl FnMut(&V) -> u64) -> u64 {
        self.0.values().map(of).sum()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn any(&self, which: impl FnMut(&V) -> bool) -> bool {
        self.0.values().any(which)
    }

    /// Returns the keys of the selected entries, in order.
    pub(crate) fn keys_of(&self, which: impl Fn(&K, &V) -> bool) -> Vec<K> {
        let mut keys: Vec<K> = self.0.iter().filter(|(key, value)| which(key, value)).map(|(&key, _)| key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order() {
        let mut table = Table::default();
        for key in [5, 900, 1, 70_000, 3] {
            table.insert(key, key % 2);
        }
        assert_eq!(table.keys_of(|_, &odd| odd == 1), [1, 3, 5]);
        assert_eq!((table.remove(&3), table.remove(&3), table.contains_key(&3)), (Some(1), None, false));
        *table.or_default(3) += 7;
        assert_eq!((table.get(&3), table.get(&4)), (Some(&7), None));
        assert!(table.get_mut(&4).is_none() && table.any(|&value| value == 7));
    }
}
