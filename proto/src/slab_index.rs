//! Indices of slabs, with a type for each slab.

use core::num::NonZeroU32;

/// An index into a slab. `Option<SlabIndex>` has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlabIndex(NonZeroU32);

impl SlabIndex {
    pub(crate) fn new(index: usize) -> Self {
        SlabIndex(NonZeroU32::MIN.saturating_add(index as u32))
    }

    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The index of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventRef(pub(crate) SlabIndex);

/// The index of private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrivateDataRef(pub(crate) SlabIndex);
