//! Keys: 8 bytes with a type for each kind of object. A key contains the number of its core and a generation, so a
//! stale or foreign key is an error and never finds another object.

use alloc::string::ToString;
use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use crate::text::ParseError;

/// A key is, from the most significant bit: the slot, the number of the core, the generation. The generation is never
/// 0.
const SLOT_BITS: u32 = 24;
const CORE_BITS: u32 = 12;
const GENERATION_BITS: u32 = 28;
static_assertions::const_assert_eq!(SLOT_BITS + CORE_BITS + GENERATION_BITS, u64::BITS);

const SLOT_SHIFT: u32 = CORE_BITS + GENERATION_BITS;
const GENERATION_MAX: u64 = (1 << GENERATION_BITS) - 1;

/// The number of slots that keys have.
pub(crate) const SLOTS: u32 = 1 << SLOT_BITS;
/// The highest number of a core.
pub(crate) const CORE_MAX: u16 = (1 << CORE_BITS) - 1;

macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        ///
        /// Printed as the number of its core, its slot, and its generation from the second on: `s3/
        #[doc = concat!($prefix, "5.2`. The number 0 and the first generation are not printed: `", $prefix, "5`.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// Returns the key as one integer, for example for `rdma_cm_id.context` or `epoll_data`. From the most
            /// significant bit: 24 bits of slot, 12 of the core's number, 28 of generation.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                self.0.get()
            }

            /// Returns the key with this value of `to_bits`; `None` if no key has this value.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Option<Self> {
                match NonZeroU64::new(bits) {
                    Some(key) if bits & GENERATION_MAX != 0 => Some(Self(key)),
                    Some(_) | None => None,
                }
            }

            /// Returns the key with these parts: for a device without a core, and for tests. `None` if one of them
            /// has too many bits, or the generation is 0.
            #[must_use]
            pub const fn from_parts(core: u16, slot: u32, generation: u32) -> Option<Self> {
                if core > CORE_MAX || slot >= SLOTS || generation as u64 > GENERATION_MAX {
                    return None;
                }
                Self::from_bits((slot as u64) << SLOT_SHIFT | (core as u64) << GENERATION_BITS | generation as u64)
            }

            /// The number of the core that made the key ([`Limits::core`](crate::Limits::core)).
            #[must_use]
            pub const fn core(self) -> u16 {
                (self.0.get() >> GENERATION_BITS) as u16 & CORE_MAX
            }

            /// The slot in the core's table, less than 2^24. Slots are dense, so a key can be an index into a table.
            #[must_use]
            pub const fn slot(self) -> usize {
                (self.0.get() >> SLOT_SHIFT) as usize
            }

            /// The generation: the number of times that the slot was used, this use included.
            #[must_use]
            pub const fn generation(self) -> u32 {
                (self.0.get() & GENERATION_MAX) as u32
            }
        }

        impl Key for $name {
            fn first(core: u16, slot: usize) -> Option<Self> {
                u32::try_from(slot).ok().and_then(|slot| Self::from_parts(core, slot, 1))
            }
            fn slot(self) -> usize {
                $name::slot(self)
            }
            fn is_later(self, other: Self) -> bool {
                (self.core(), self.slot()) == (other.core(), other.slot()) && self.generation() > other.generation()
            }
            fn next(self) -> Option<Self> {
                // The generation is in the least significant bits; after its maximum the sum has generation 0.
                self.0.checked_add(1).and_then(|bits| Self::from_bits(bits.get()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.core() > 0 {
                    write!(f, "s{}/", self.core())?;
                }
                write!(f, "{}{}", $prefix, self.slot())?;
                if self.generation() > 1 {
                    write!(f, ".{}", self.generation())?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        /// Only the text that `Display` writes, so that equal keys have equal texts.
        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                let parse = || {
                    let (core, rest) = match text.strip_prefix('s') {
                        Some(numbered) => numbered.split_once('/')?,
                        None => ("0", text),
                    };
                    let numbers = rest.strip_prefix($prefix)?;
                    let (slot, generation) = numbers.split_once('.').unwrap_or((numbers, "1"));
                    $name::from_parts(core.parse().ok()?, slot.parse().ok()?, generation.parse().ok()?)
                };
                parse().filter(|key| key.to_string() == text).ok_or(ParseError(concat!("a key that begins with ", $prefix)))
            }
        }

        static_assertions::assert_eq_size!(Option<$name>, u64);
    };
}

/// A key of any kind of object, as an index into a table.
#[allow(unnameable_types, reason = "only the keys of this module are keys")]
pub trait Key: Copy + Eq {
    /// The first key of a slot; `None` from slot 2^24 on.
    fn first(core: u16, slot: usize) -> Option<Self>;
    /// The slot in the core's table.
    fn slot(self) -> usize;
    /// Whether this is a later key of the same slot and core than `other`.
    fn is_later(self, other: Self) -> bool;
    /// The next key of the same slot; `None` once the generations are used up.
    fn next(self) -> Option<Self>;
}

key! {
    /// The key of one `rdma_cm_id` of one [`Core`](crate::Core).
    #[doc(alias = "rdma_cm_id")]
    IdKey, "id"
}

key! {
    /// The key of one event channel of one [`Core`](crate::Core); an id in synchronous mode has its own channel.
    #[doc(alias = "rdma_event_channel")]
    ChannelKey, "ch"
}

key! {
    /// The key of one membership of one id in a multicast group.
    GroupKey, "grp"
}

/// The target of a request or a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// An id.
    Id(IdKey),
    /// A channel that the application opens or closes.
    Channel(ChannelKey),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Id(id) => id.fmt(f),
            Target::Channel(channel) => channel.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_parts() {
        for (core, slot, generation) in [(0, 0, 1), (3, 5, 2), (CORE_MAX, SLOTS - 1, GENERATION_MAX as u32)] {
            let key = IdKey::from_parts(core, slot, generation).unwrap();
            assert_eq!((key.core(), key.slot(), key.generation()), (core, slot as usize, generation));
            assert_eq!(IdKey::from_bits(key.to_bits()), Some(key));
        }
        assert_eq!(IdKey::from_parts(CORE_MAX + 1, 0, 1), None);
        assert_eq!(IdKey::from_parts(0, SLOTS, 1), None);
        assert_eq!(IdKey::from_parts(0, 0, GENERATION_MAX as u32 + 1), None);
        assert_eq!(IdKey::from_parts(1, 1, 0), None, "generation 0 is not valid");
        assert_eq!(IdKey::from_bits(u64::MAX << GENERATION_BITS), None, "generation 0 is not valid");
    }

    #[test]
    fn the_next_key_differs_in_its_generation_only_and_the_last_has_none() {
        let next = IdKey::from_parts(3, 5, 7).unwrap().next();
        assert_eq!(next, IdKey::from_parts(3, 5, 8));
        for core in [3, CORE_MAX] {
            assert_eq!(IdKey::from_parts(core, SLOTS - 1, GENERATION_MAX as u32).unwrap().next(), None);
        }
        assert!(IdKey::first(0, SLOTS as usize - 1).is_some());
        assert_eq!(IdKey::first(0, SLOTS as usize), None);
    }

    #[test]
    fn the_number_of_the_core_is_printed_but_for_0() {
        let shown = |core, slot, generation| ChannelKey::from_parts(core, slot, generation).unwrap().to_string();
        assert_eq!(shown(0, 4, 1), "ch4");
        assert_eq!(shown(0, 4, 2), "ch4.2");
        assert_eq!(shown(3, 0, 1), "s3/ch0");
        assert_eq!(shown(4095, 7, 9), "s4095/ch7.9");
    }
}
