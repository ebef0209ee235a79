//! What must hold in every state: the laws of memory.

/// A law that a region or a domain has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// Something panicked.
    Panics,
    /// The outcome of a call that was asked for is called a fault.
    Faults,
    /// A call named a registration that is gone: it was deregistered twice, or used after.
    UsesWhatIsFreed,
    /// A PD was deallocated while something at the device belonged to it.
    DeallocatesInUse,
    /// A buffer was dropped or copied inside a region.
    LosesBuffer,
    /// A request ended as another one.
    EndsWrong,
    /// A deregistration was refused where it is all that helps.
    RefusesDeregister,
    /// Not everything went away.
    Leaks,
}
