//! Programs from bytes, on a model of the kernel as a core sees it.
//!
//! Each target is a function of bytes that panics if an invariant is violated. There is one generator of inputs,
//! [`Input`]: the fuzzer's inputs, the committed corpora and the random programs of proptest are the same bytes, and a
//! failure of each shrinks to fewer of them. The programs of `tests/differential` are made from bytes by it too. `tests/random.rs` runs random bytes; `tests/replay.rs` replays the committed
//! corpora on stable. Only `fuzz/`, a separate workspace with one line per target, needs cargo-fuzz: `cargo xtask fuzz
//! TARGET`. The last four targets need the feature `devices`.
//!
//! | target | application | device | what must hold |
//! | --- | --- | --- | --- |
//! | [`ops`] | hostile | hostile | no panic; every invariant; a request that is refused or not made changes nothing |
//! | [`raw_event`] | correct, to any state | any raw event | an event is delivered unchanged, or changes nothing |
//! | [`faithful`] | any requests | a model of the kernel | no fault; nothing lost; deadlines kept; all work ends |
//! | [`migrate`] | ids move between channels and cores | the same model | the same, and nothing on the old channel |
//! | [`rereg`] | registers memory, in any order | any answer, any partial effect | nothing in use is released |
//! | [`redial`] | reports anything, at any time | none | each wait ends; each answer can be done; an end within the limits |
//! | [`messages`] | two, over packets that arrive late; or one with a hostile peer | none | each packet meets a receive; all arrive; each wrong packet is an error |
//! | [`nvme_responses`] | `cmid-nvme` without I/O | none: a hostile NVMe target | a command ends at most once, and none is lost |
//! | `pair` | two, simulated | lossy, slow, removable; may repeat events | no fault unless repeated; all work ends |
//! | `kernel` | any requests, on `KernelCm` | any bytes as the kernel's answers | an event is what the bytes say |
//! | `blocks` | drops, forgets and shares blocks, on threads, and panics | simulated | a block has one owner |
//! | `in_flight` | posts, polls, destroys and deregisters | completes, drops, repeats | memory is pinned until the last poll |

#[cfg(feature = "devices")]
#[path = "../../../verbs/src/accounting/mod.rs"]
#[expect(
    clippy::collapsible_if,
    dead_code,
    unsafe_code,
    reason = "a module of cmid-verbs, of which `in_flight` needs a part"
)]
mod accounting;
pub mod blocks;
pub mod faithful;
#[cfg(feature = "devices")]
pub mod in_flight;
mod input;
#[cfg(feature = "devices")]
pub mod kernel;
pub mod messages;
#[cfg(feature = "devices")]
mod methods;
pub mod migrate;
mod model;
pub mod nvme_responses;
pub mod one_host;
pub mod ops;
#[cfg(feature = "devices")]
pub mod pair;
pub mod raw_event;
pub mod redial;
pub mod rereg;
mod say;
mod script;
#[path = "../../../proto/tests/dialogues/taken.rs"]
mod taken;
mod well;

pub use input::Input;

/// Prints each step of an input to standard error from now on. The environment variable `CMID_FUZZ_TRACE` enables
/// this from the start.
pub fn trace() {
    say::turn_on();
}

/// Runs an input of a target and returns its steps, one line each.
#[must_use]
pub fn steps(target: &Target, data: &[u8]) -> Vec<String> {
    say::lines_of(|| (target.run)(data))
}

/// A target: its name, which is also that of its corpus, and its function.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name in `cargo xtask fuzz` and `corpus/`.
    pub name: &'static str,
    /// Runs an input; panics if an invariant is violated.
    pub run: fn(&[u8]),
}

/// All targets, without the feature `devices` those that need only a core.
pub const TARGETS: &[Target] = &[
    Target { name: "ops", run: ops::run },
    Target { name: "raw_event", run: raw_event::run },
    Target { name: "faithful", run: faithful::run },
    Target { name: "migrate", run: migrate::run },
    Target { name: "rereg", run: rereg::run },
    Target { name: "redial", run: redial::run },
    Target { name: "messages", run: messages::run },
    Target { name: "nvme_responses", run: nvme_responses::run },
    #[cfg(feature = "devices")]
    Target { name: "blocks", run: blocks::run },
    #[cfg(feature = "devices")]
    Target { name: "in_flight", run: in_flight::run },
    #[cfg(feature = "devices")]
    Target { name: "pair", run: pair::run },
    #[cfg(feature = "devices")]
    Target { name: "kernel", run: kernel::run },
];
