//! The objects that a region owns while the device may refer to them.

/// The use of a PD by one registration. A clone counts one more use
/// ([`Domain::share`](crate::memory::Domain::share)); a drop ends one.
pub trait Pd: Clone {
    /// Whether both PDs belong to the same device.
    fn same_device(&self, other: &Self) -> bool;

    /// Whether the device checks the key of a peer's packet and copies the packet later, and only a deregistration waits for
    /// the copy, as soft-RoCE on several CPUs (`check_rkey`, `write_data_in`, `rxe_cleanup`).
    fn copies_late(&self) -> bool;
}

/// The memory that a region keeps alive for the device.
pub trait Buffer {
    /// The length in bytes.
    fn len(&self) -> usize;

    /// Whether the length is 0. Such a buffer cannot be registered.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Buffer for alloc::vec::Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }
}
