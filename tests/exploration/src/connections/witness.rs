//! Situations that must occur.

use crate::witness::witnesses;

witnesses! {
    /// A connection was established.
    Established,
    /// An id arrived on another channel together with events that were unread.
    MovedWithUnread,
    /// An id arrived on another channel together with events that were undelivered.
    MovedWithUndelivered,
    /// A migration waited for acks, and ended by event.
    MovedAfterAcks,
    /// A migration failed.
    NotMoved,
    /// A destroy waited for acks, and ended by event.
    DestroyedAfterAcks,
    /// An id was destroyed with owed acks.
    DestroyedWithoutAcks,
    /// A destroy ended a migration that waited for acks.
    DestroyOvertookMove,
    /// A destroy failed, and the id remained.
    NotDestroyed,
    /// A late event was ignored.
    LateEvent,
    /// A request was refused, and nothing changed.
    Refused,
    /// A deadline passed.
    DeadlinePassed,
    /// A migration timed out while it waited for acks.
    MoveTimedOut,
    /// A destroy timed out while it waited for acks.
    DestroyTimedOut,
    /// A device was removed.
    Removed,
    /// There was no room for an event; it stayed in the kernel.
    NoRoom,
    /// A synchronous request ended by event.
    SyncEnded,
    /// A request came and was delivered.
    ChildDelivered,
    /// A listener moved with undelivered requests.
    ListenerMovedWithRequests,
    /// A listener was destroyed with undelivered requests.
    RequestsDiscarded,
    /// A request came for a listener that does not listen any more.
    LateRequest,
    /// Everything is gone.
    Ended,
}
