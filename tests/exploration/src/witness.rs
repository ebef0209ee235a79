//! Witnesses: situations that must occur in a world, to exclude vacuous checks.

/// Declares the witnesses of one model, which are noted when a step shows them, and their properties.
macro_rules! witnesses {
    ($model:ident; $($(#[$doc:meta])* $name:ident,)+) => {
        /// A situation that occurs in some worlds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Witness {
            $( $(#[$doc])* $name, )+
        }

        impl Witness {
            /// All of them.
            pub const ALL: &[Witness] = &[$( Witness::$name, )+];

            /// As a property: one function each, because the checker takes no closures.
            fn property(self) -> stateright::Property<$model> {
                match self {
                    $( Witness::$name => stateright::Property::sometimes(stringify!($name), |model: &$model, _| {
                        model.seen.has(Witness::$name)
                    }), )+
                }
            }
        }

        /// Which witnesses have turned up.
        #[derive(Clone, Debug, Default)]
        struct Seen(std::sync::Arc<[std::sync::atomic::AtomicBool; Witness::ALL.len()]>);

        impl Seen {
            fn note(&self, witness: Witness) {
                self.0[witness as usize].store(true, std::sync::atomic::Ordering::Relaxed);
            }

            fn note_if(&self, is_so: bool, witness: Witness) {
                if is_so {
                    self.note(witness);
                }
            }

            fn has(&self, witness: Witness) -> bool {
                self.0[witness as usize].load(std::sync::atomic::Ordering::Relaxed)
            }
        }
    };
}

pub(crate) use witnesses;
