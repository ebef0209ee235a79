//! What the fuzz targets do.
//!
//! Every target is an ordinary function of bytes that panics if a law does not hold, so that `cargo test` compiles it and
//! replays the committed corpora on stable (`tests/replay.rs`). Only `fuzz/`, a workspace of its own with a line
//! for each, needs cargo-fuzz: `cargo xtask fuzz TARGET`.
//!
//! | target | application | device | what must hold |
//! | --- | --- | --- | --- |
//! | [`ops`] | hostile | hostile | no panic; every invariant after every step; what is refused changes nothing |
//! | [`raw_event`] | correct, to any state | says anything | an event comes out as it went in, or changes nothing |
//! | [`faithful`] | any requests | a model of the kernel | no fault; nothing lost; deadlines kept; it all comes to rest |
//! | [`migrate`] | ids move between channels and cores | the same model | the same, and nothing on the old channel |
//! | [`rereg`] | registers memory, in any order | anything, and as much of it as it likes | nothing is let go that is referred to |
//! | [`pair`] | two, on the simulated fabric | lossy, slow, removable; or tells events twice | no fault unless it lied; it all ends |
#![forbid(unsafe_code)]

pub mod faithful;
mod input;
pub mod migrate;
mod model;
pub mod ops;
pub mod pair;
pub mod raw_event;
pub mod rereg;
mod say;
mod script;

/// From now on, every step of an input is told on standard error. So it is from the beginning where the environment has
/// `CMID_FUZZ_TRACE`.
pub fn trace() {
    say::turn_on();
}

/// Runs an input of a target and returns its steps, a line for each.
#[must_use]
pub fn steps(target: &Target, data: &[u8]) -> Vec<String> {
    say::lines_of(|| (target.run)(data))
}

/// A target: its name, which is also that of its corpus, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As `cargo xtask fuzz` and `corpus/` know it.
    pub name: &'static str,
    /// Panics if a law does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "ops", run: ops::run },
    Target { name: "raw_event", run: raw_event::run },
    Target { name: "faithful", run: faithful::run },
    Target { name: "migrate", run: migrate::run },
    Target { name: "rereg", run: rereg::run },
    Target { name: "pair", run: pair::run },
];
