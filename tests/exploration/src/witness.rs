//! Witnesses: situations that must occur in a world, to exclude vacuous checks.

/// Declares the witnesses of one model, which are noted when a step shows them, and their properties.
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
            pub(super) fn property<M: Witnessed>(self) -> stateright::Property<M> {
                match self {
                    $( Witness::$name => stateright::Property::sometimes(stringify!($name), |model: &M, _| {
                        model.seen().has(Witness::$name)
                    }), )+
                }
            }
        }

        /// A model that notes its witnesses.
        pub(super) trait Witnessed: stateright::Model {
            fn seen(&self) -> &Seen;
        }

        /// Which witnesses have turned up.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Seen(std::sync::Arc<[std::sync::atomic::AtomicBool; Witness::ALL.len()]>);

        impl Seen {
            pub(crate) fn note(&self, witness: Witness) {
                self.0[witness as usize].store(true, std::sync::atomic::Ordering::Relaxed);
            }

            pub(crate) fn note_if(&self, is_so: bool, witness: Witness) {
                if is_so {
                    self.note(witness);
                }
            }

            pub(crate) fn has(&self, witness: Witness) -> bool {
                self.0[witness as usize].load(std::sync::atomic::Ordering::Relaxed)
            }
        }
    };
}

pub(crate) use witnesses;
