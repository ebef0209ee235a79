//! Random programs: each target on random bytes. A failure is shrunk to fewer and smaller bytes, and names a file with
//! them.
//!
//! `PROPTEST_CASES` replaces the number of programs, with new ones in each run unless `PROPTEST_RNG_SEED` is given.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use cmid_model::{TARGETS, faithful};
use cmid_proto::State;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

/// The longest input. It leads several ids to their ends.
const LONGEST: usize = 1500;

/// By default these programs are the same in each run: a failure is due to a change.
fn config(few: u32) -> Config {
    let usual = Config { failure_persistence: None, ..Config::default() };
    if env::var_os("PROPTEST_CASES").is_some() {
        return usual;
    }
    Config { cases: few, rng_seed: RngSeed::Fixed(1), ..usual }
}

/// Runs `few` programs.
fn run(name: &str, few: u32, program: impl Fn(&[u8])) {
    let bytes = prop::collection::vec(any::<u8>(), 0..LONGEST);
    let result = TestRunner::new(config(few)).run(&bytes, |data| {
        program(&data);
        Ok(())
    });
    if let Err(TestError::Fail(reason, data)) = result {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let told = match fs::write(&file, &data) {
            Ok(()) => format!("cargo xtask fuzz {name} {}", file.display()),
            Err(error) => format!("{data:?}, not written to {}: {error}", file.display()),
        };
        panic!("{reason}\nits steps: {told}");
    }
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn run_target(name: &str, few: u32) {
    run(name, few, TARGETS.iter().find(|target| target.name == name).expect("a target").run);
}

#[test]
fn a_hostile_nvme_target_ends_no_command_twice() {
    run_target("nvme_responses", 500);
}

#[test]
fn the_laws_hold_for_a_core_on_a_faithful_kernel_and_every_state_is_reached() {
    let seen = RefCell::new(BTreeSet::new());
    run("faithful", 300, |data| seen.borrow_mut().extend(faithful::states(data)));
    let unseen: Vec<_> = State::ALL.into_iter().filter(|state| !seen.borrow().contains(state)).collect();
    assert!(unseen.is_empty(), "no program was in {unseen:?}");
}

#[test]
fn the_laws_hold_for_ids_that_move_between_channels_and_cores() {
    run_target("migrate", 200);
}

#[test]
fn the_laws_hold_whatever_the_device_says() {
    run_target("ops", 300);
}

#[test]
fn the_laws_hold_for_any_event() {
    run_target("raw_event", 300);
}

/// A work request in flight is copied to its memory by the poll: no poll writes to memory that was let go.
#[test]
fn the_laws_hold_for_memory_regions() {
    run_target("rereg", 800);
}

#[test]
fn the_laws_hold_for_connections_that_are_made_again() {
    run_target("redial", 2_000);
}

#[test]
fn the_laws_hold_for_messages() {
    run_target("messages", 2_000);
}

#[cfg(feature = "devices")]
#[test]
fn the_laws_hold_for_two_drives_on_the_simulator() {
    run_target("pair", 100);
}

#[cfg(feature = "devices")]
#[test]
fn a_block_has_one_owner_whatever_a_program_does() {
    run_target("blocks", 400);
}

#[cfg(feature = "devices")]
#[test]
fn the_laws_hold_for_devices_that_answer_anything() {
    run_target("kernel", 200);
    run_target("in_flight", 200);
}
