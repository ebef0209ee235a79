//! Random programs against a model of the kernel, written from the man pages and from what the kernel does, without
//! the tables: of the bare core, of two drives that are connected to each other, and of memory regions.
//!
//! A failure prints its seed. `CMID_RANDOM=first..end` replaces the default seeds.

// The model of the kernel names the cases that it handles; all others are one case.
#![allow(clippy::wildcard_enum_match_arm)]

mod core_alone;
mod engine;
mod host;
mod kernel;
mod ledger;
mod program;
mod regions;
mod two_drives;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cmid_proto::State;

/// Runs `program` for each seed; a failure prints the seed. Returns whether the seeds are the default ones.
fn for_seeds(few: u64, mut program: impl FnMut(&mut fastrand::Rng)) -> bool {
    for seed in seeds(few) {
        let run = AssertUnwindSafe(|| program(&mut fastrand::Rng::with_seed(seed)));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("seed {seed}: repeat with CMID_RANDOM={seed}..{}", seed + 1);
            resume_unwind(panic);
        }
    }
    seeds(few) == (0..few)
}

/// The states that no program has reached.
fn unseen(seen: &BTreeSet<State>) -> Vec<State> {
    State::ALL.into_iter().filter(|state| !seen.contains(state)).collect()
}

fn seeds(few: u64) -> Range<u64> {
    let Ok(range) = std::env::var("CMID_RANDOM") else { return 0..few };
    let (first, end) = range.split_once("..").expect("CMID_RANDOM is FIRST..END");
    let number = |text: &str| text.parse().expect("CMID_RANDOM has two numbers");
    number(first)..number(end)
}
