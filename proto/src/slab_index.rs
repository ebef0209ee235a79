//! Indices of slabs, with a type for each slab.

use core::num::NonZeroU32;

/// A place in a slab, such that an `Option` of it takes no more room.
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

/// The place of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventRef(pub(crate) SlabIndex);

/// The place of private data that is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrivateDataRef(pub(crate) SlabIndex);
