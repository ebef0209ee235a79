//! The explored worlds.

use cmid_proto::memory::{Fallback, Provider};

use super::scene::{Scene, Truth};
use super::witness::Witness;

/// One region with all changes.
pub const ONE: Scene = Scene {
    name: "memory-one",
    target: "2 PDs x 1 MR x 3 buffers: every change, every outcome, with and without a fallback, removal",
    pds: 2,
    mrs: 1,
    buffers: 3,
    provider: Provider::Unknown,
    truths: &[Truth::Old, Truth::New, Truth::Either],
    losses: true,
    allocated: false,
    fallbacks: &[Fallback::None, Fallback::Anew],
    rights: true,
    together: true,
    removal: true,
    shows: Witness::ALL,
};

/// Two regions, that share PDs and buffers.
pub const TWO: Scene = Scene {
    name: "memory-two",
    target: "2 PDs x 2 MRs x 2 buffers: PDs or memory exchanged, with a fallback",
    mrs: 2,
    buffers: 2,
    truths: &[Truth::Either],
    losses: false,
    allocated: true,
    removal: false,
    fallbacks: &[Fallback::Anew],
    rights: false,
    together: false,
    ..ONE
};

/// A provider that checks before it changes anything.
pub const CHECKS_FIRST: Scene = Scene {
    name: "memory-checks-first",
    target: "2 PDs x 2 MRs x 3 buffers on a provider that checks first, without a fallback",
    provider: Provider::ChecksFirst,
    buffers: 3,
    fallbacks: &[Fallback::None],
    together: true,
    shows: &[
        Witness::Reregistered,
        Witness::OldStays,
        Witness::NotDeregistered,
        Witness::Deallocated,
        Witness::Refused,
    ],
    ..TWO
};

/// All of them.
pub const ALL: &[Scene] = &[ONE, TWO, CHECKS_FIRST];

/// Worlds with wider bounds, which take minutes.
pub const LARGE: &[Scene] = &[
    Scene { name: "memory-two-3", target: "the same x 3 buffers", buffers: 3, ..TWO },
    Scene { name: "memory-two-lost", target: "the same where deregistrations leave anything", losses: true, ..TWO },
];
