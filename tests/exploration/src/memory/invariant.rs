//! Invariants of memory.

/// A violated invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// Something panicked.
    Panics,
    /// A correct outcome of a call was reported as a fault.
    Faults,
    /// A call named a deregistered registration.
    UsesWhatIsFreed,
    /// A PD was deallocated with users at the device.
    DeallocatesInUse,
    /// A buffer was dropped or copied inside a region.
    LosesBuffer,
    /// A request ended as another kind of request.
    EndsWrong,
    /// A deregistration was refused although nothing else is possible.
    RefusesDeregister,
    /// Something remained at the end.
    Leaks,
}
