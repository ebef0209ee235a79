//! Invariants of the core.

/// A violated invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// The core panicked.
    Panics,
    /// It reported a fault although the device is faithful.
    Faults,
    /// It called a migration or destruction while the application owed an ack of that id and had not given it up
    /// (`destroy_now`).
    CallsWhileAcksAreOwed,
    /// It accepted an ack token that was given up.
    TakesVoidReceipt,
    /// It moved an id that the application neither migrates nor accepts, and that is not to listen.
    MovesUnasked,
    /// An event was delivered out of order, twice, or without a report.
    Order,
    /// An event was delivered on a channel that its id is not on.
    WrongChannel,
    /// It reported the end of a request that was not open.
    EndsTwice,
    /// A request never ended.
    NeverEnds,
    /// A creation failed, and something changed.
    FailsAndChanges,
    /// An event was lost.
    LosesEvent,
    /// An event stayed unread after all work was done: a wakeup was lost.
    LosesWakeUp,
    /// Something remained after all acks and destroys.
    Leaks,
    /// A destroy was refused.
    RefusesDestroy,
}
