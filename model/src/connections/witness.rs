//! What must turn up in a world, lest it be vacuous.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! witnesses {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Something that happens in some worlds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Witness {
            $( $(#[$doc])* $name, )+
        }

        impl Witness {
            /// All of them.
            pub const ALL: &[Witness] = &[$( Witness::$name, )+];

            /// Its name, as a property.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Witness::$name => stringify!($name), )+ }
            }
        }

        /// The witness as a property: one function each, as the checker takes no closures.
        pub(super) fn property(witness: Witness) -> stateright::Property<super::Connections> {
            match witness {
                $( Witness::$name => stateright::Property::sometimes(stringify!($name), |model: &super::Connections, _| {
                    model.seen.has(Witness::$name)
                }), )+
            }
        }
    };
}

witnesses! {
    /// A connection stands.
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
    /// A destroy overtook a migration.
    DestroyOvertookMove,
    /// A destroy failed, and the id lives on.
    NotDestroyed,
    /// An event came too late to mean anything.
    LateEvent,
    /// An event on the new channel came before the outcome of the migration.
    ArrivedByEvent,
    /// A request was refused, and nothing changed.
    Refused,
    /// A deadline passed.
    DeadlinePassed,
    /// A migration gave up waiting for acks.
    MoveTimedOut,
    /// A destroy gave up waiting for acks.
    DestroyTimedOut,
    /// A device went.
    Removed,
    /// There was no room for an event, which stayed in the kernel.
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

    pub(super) fn has(&self, witness: Witness) -> bool {
        self.0[witness as usize].load(Ordering::Relaxed)
    }
}
