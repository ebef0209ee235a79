//! Situations that must occur.

use crate::witness::witnesses;

witnesses! {
    /// A re-registration succeeded.
    Reregistered,
    /// A re-registration failed and the old registration stayed.
    OldStays,
    /// A fallback was begun.
    Fallback,
    /// A fallback was undone.
    FallbackUndone,
    /// Neither registration could be relied on.
    Unusable,
    /// Two registrations were discarded, one after the other.
    TwoDiscarded,
    /// A deregistration gave back two buffers.
    BothReturned,
    /// A deregistration failed.
    NotDeregistered,
    /// A PD was deallocated.
    Deallocated,
    /// A request was refused, and nothing changed.
    Refused,
}
