//! `cmid-replay`: replays recordings of cmid drivers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use cmid_replay::Arguments;

/// Replays recordings of cmid drivers.
///
/// Runs the recorded steps through the state machines of cmid, without a device. Prints each step with the change of
/// state, and compares calls, events and the final state with the recording. The exit status is 0 if they agree.
#[derive(Debug, Parser)]
#[command(name = "cmid-replay", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    match cmid_replay::run(&Program::parse().arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cmid-replay: {error:#}");
            ExitCode::FAILURE
        }
    }
}
