//! Witnesses: situations that must occur in a world, to exclude vacuous checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stateright::Property;

use super::Connections;

/// Declares the witnesses, which are noted when a step shows them, and their properties.
macro_rules! witnesses {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A situation that occurs in some worlds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Witness {
            $( $(#[$doc])* $name, )+
        }

        impl Witness {
            /// All of them.
            pub const ALL: &[Witness] = &[$( Witness::$name, )+];

            /// As a property: one function each, because the checker takes no closures.
            pub(super) fn property(self) -> Property<Connections> {
                match self {
                    $( Witness::$name => Property::sometimes(stringify!($name), |model: &Connections, _| {
                        model.seen.has(Witness::$name)
                    }), )+
                }
            }
        }
    };
}

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

/// Which witnesses have turned up.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<[AtomicBool; Witness::ALL.len()]>);

impl Seen {
    pub(super) fn note(&self, witness: Witness) {
        self.0[witness as usize].store(true, Ordering::Relaxed);
    }

    pub(super) fn note_if(&self, is_so: bool, witness: Witness) {
        if is_so {
            self.note(witness);
        }
    }

    fn has(&self, witness: Witness) -> bool {
        self.0[witness as usize].load(Ordering::Relaxed)
    }
}
