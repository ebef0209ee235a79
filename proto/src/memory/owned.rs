//! What a region owns as long as the device may refer to it.

/// The use of a PD by one registration. A clone is one more use ([`Domain::share`](crate::memory::Domain::share)), a drop one
/// less.
pub trait Pd: Clone {
    /// Whether both are of the same device.
    fn same_device(&self, other: &Self) -> bool;
}

/// What a region keeps alive for the device.
pub trait Buffer {
    /// How many bytes it has.
    fn len(&self) -> usize;

    /// Whether it has none: then it cannot be registered.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Buffer for alloc::vec::Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }
}
