//! The private data of undelivered events and of calls. Usually at most one is stored at a time.

use core::hash::{Hash, Hasher};

use slab::Slab;

use crate::event::Datagram;
use crate::private_data::PrivateData;
use crate::slab_index::{PrivateDataRef, SlabIndex};

/// Private data and datagram address, stored apart from events and calls: few have any, and they are larger than the
/// rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoredPrivateData {
    pub(crate) private_data: PrivateData,
    pub(crate) datagram: Option<Datagram>,
}

/// A slab with its newest entry in a field of its own. This is a short path: to insert an entry takes one copy, and to
/// remove it takes none. The entry has the index of the next vacant slot. Before another entry is inserted or removed,
/// it is moved to that slot. So the indices are those of a plain slab.
#[derive(Clone, Debug)]
pub(crate) struct PrivateDataSlab {
    slab: Slab<StoredPrivateData>,
    newest: StoredPrivateData,
    /// Whether `newest` is an entry. Otherwise its bytes are those of a removed entry.
    has_newest: bool,
}

impl Default for PrivateDataSlab {
    fn default() -> Self {
        let newest = StoredPrivateData { private_data: PrivateData::EMPTY, datagram: None };
        PrivateDataSlab { slab: Slab::new(), newest, has_newest: false }
    }
}

impl PrivateDataSlab {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slab.len() + usize::from(self.has_newest)
    }

    #[inline]
    pub(crate) fn insert(&mut self, private_data: &[u8], datagram: Option<Datagram>) -> PrivateDataRef {
        if self.has_newest {
            self.move_newest();
        }
        self.newest.private_data.set(private_data);
        self.newest.datagram = datagram;
        self.has_newest = true;
        PrivateDataRef(SlabIndex::new(self.slab.vacant_key()))
    }

    #[inline]
    pub(crate) fn get(&self, at: PrivateDataRef) -> Option<&StoredPrivateData> {
        if self.is_newest(at) { Some(&self.newest) } else { self.slab.get(at.0.index()) }
    }

    #[inline]
    pub(crate) fn remove(&mut self, at: PrivateDataRef) {
        if self.is_newest(at) {
            self.has_newest = false;
        } else {
            self.remove_older(at);
        }
    }

    #[inline(never)]
    fn remove_older(&mut self, at: PrivateDataRef) {
        self.move_newest();
        self.slab.try_remove(at.0.index());
    }

    #[inline]
    fn is_newest(&self, at: PrivateDataRef) -> bool {
        self.has_newest && at.0.index() == self.slab.vacant_key()
    }

    #[inline(never)]
    fn move_newest(&mut self) {
        if core::mem::take(&mut self.has_newest) {
            self.slab.insert(self.newest.clone());
        }
    }

    /// Returns the entries in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &StoredPrivateData)> {
        let newest = self.has_newest.then(|| (self.slab.vacant_key(), &self.newest));
        let end = newest.map_or(0, |(at, _)| at);
        let before = self.slab.iter().filter(move |&(at, _)| at < end);
        before.chain(newest).chain(self.slab.iter().filter(move |&(at, _)| at >= end))
    }
}

impl PartialEq for PrivateDataSlab {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for PrivateDataSlab {}

impl Hash for PrivateDataSlab {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn entry(data: &[u8]) -> StoredPrivateData {
        StoredPrivateData { private_data: PrivateData::copy_of(data), datagram: None }
    }

    /// Makes the same insertions and removals, up to a length, on a slab and on a plain one, and compares them after
    /// each step.
    fn compare(slab: &PrivateDataSlab, plain: &Slab<StoredPrivateData>, live: &[PrivateDataRef], steps: u8) {
        assert!(slab.iter().eq(plain), "{slab:?} {plain:?}");
        assert_eq!(slab.len(), plain.len());
        for &at in live {
            assert_eq!(slab.get(at), plain.get(at.0.index()));
        }
        if steps == 0 {
            return;
        }
        let (mut longer, mut longer_plain, mut more) = (slab.clone(), plain.clone(), live.to_vec());
        let data = [steps; 3];
        let at = longer.insert(&data[..usize::from(steps % 4)], None);
        assert_eq!(at.0.index(), longer_plain.insert(entry(&data[..usize::from(steps % 4)])));
        more.push(at);
        compare(&longer, &longer_plain, &more, steps - 1);
        for (place, &at) in live.iter().enumerate() {
            let (mut shorter, mut shorter_plain, mut fewer) = (slab.clone(), plain.clone(), live.to_vec());
            shorter.remove(at);
            shorter_plain.remove(at.0.index());
            fewer.remove(place);
            assert_eq!((shorter.get(at), shorter_plain.get(at.0.index())), (None, None));
            compare(&shorter, &shorter_plain, &fewer, steps - 1);
        }
    }

    #[test]
    fn its_entries_and_their_indices_are_those_of_a_plain_slab() {
        compare(&PrivateDataSlab::default(), &Slab::new(), &Vec::new(), 7);
    }

    #[test]
    fn an_entry_has_nothing_of_the_entry_before() {
        let mut slab = PrivateDataSlab::default();
        let first = slab.insert(&[1; 9], None);
        slab.remove(first);
        let second = slab.insert(&[2; 3], None);
        assert_eq!(slab.get(second), Some(&entry(&[2; 3])));
        assert_ne!(slab.get(second), Some(&entry(&[2, 2, 2, 1, 1, 1, 1, 1, 1])));
    }
}
