//! Names of things: 8 bytes, typed, with a generation, so that a stale one is an error value and never another thing.

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            index: u32,
            generation: NonZeroU32,
        }

        impl $name {
            /// The key as one integer, for a place that holds nothing else (`rdma_cm_id.context`, an epoll datum).
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                (self.generation.get() as u64) << 32 | self.index as u64
            }

            /// The key that `to_bits` made; `None` for an integer that no key has.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Option<Self> {
                match NonZeroU32::new((bits >> 32) as u32) {
                    Some(generation) => Some(Self { index: bits as u32, generation }),
                    None => None,
                }
            }
        }

        impl Key for $name {
            fn new(index: u32, generation: NonZeroU32) -> Self {
                Self { index, generation }
            }
            fn index(self) -> usize {
                self.index as usize
            }
            fn generation(self) -> NonZeroU32 {
                self.generation
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $letter, self.index)?;
                // A generation is shown only where it tells something: the slot has been used before.
                if self.generation.get() > 1 {
                    write!(f, ".{}", self.generation)?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        static_assertions::assert_eq_size!(Option<$name>, u64);
    };
}

/// What the arena needs of a key.
pub(crate) trait Key: Copy {
    fn new(index: u32, generation: NonZeroU32) -> Self;
    fn index(self) -> usize;
    fn generation(self) -> NonZeroU32;
}

key! {
    /// Names one `rdma_cm_id` of one [`Core`](crate::Core).
    IdKey, "id"
}
key! {
    /// Names one event channel of one [`Core`](crate::Core); an id in synchronous mode has one of its own.
    ChannelKey, "ch"
}

key! {
    /// Names one membership in a multicast group of one id.
    GroupKey, "grp"
}

/// What a request or a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// An id.
    Id(IdKey),
    /// A channel that the application opened or closes.
    Channel(ChannelKey),
}

/// Names one device call, from [`Core::poll_call`](crate::Core::poll_call) to
/// [`Core::handle_outcome`](crate::Core::handle_outcome). Never used twice by one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    pub(crate) number: NonZeroU64,
    pub(crate) about: About,
}
