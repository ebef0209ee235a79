//! The conformance suite as a program: on the simulator anywhere, on a real kernel inside the VM.
#![forbid(unsafe_code)]

mod args;
mod trials;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use args::Args;
use clap::Parser;
use cmid_conformance::{Report, Speed, entries};
use cmid_harness::{Check, DeviceName, OnBlocking, OnEpoll, OnMio, OnTokio};
use libtest_mimic::Arguments;
use trials::{Plan, Set};

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        print_list();
        return ExitCode::SUCCESS;
    }
    if let [runs, into] = &args.record[..] {
        return record(runs, into);
    }
    match args.device {
        #[cfg(not(feature = "verbs"))]
        DeviceName::Sim => on(&args, |set| {
            use cmid_harness::SimEnv;
            set.add("mio", SimEnv::<OnMio<_>>::new());
            set.add("epoll", SimEnv::<OnEpoll<_>>::new());
            set.add("blocking", SimEnv::<OnBlocking<_>>::new());
            set.add("tokio", SimEnv::<OnTokio<_>>::new());
        }),
        #[cfg(feature = "verbs")]
        DeviceName::Verbs => on(&args, |set| {
            use cmid_harness::{Rereg, VerbsEnv};
            let rereg = if args.shimmed { trials::SHIMMED } else { Rereg::No };
            set.add("mio", VerbsEnv::<OnMio<_>>::with(rereg));
            set.add("epoll", VerbsEnv::<OnEpoll<_>>::with(rereg));
            set.add("blocking", VerbsEnv::<OnBlocking<_>>::with(rereg));
            // It has a step and a record of its own.
            if args.driver == Some(cmid_conformance::DriverName::Tokio) {
                set.add("tokio", VerbsEnv::<OnTokio<_>>::with(rereg));
            }
        }),
        // Compiling the scenarios for a device takes minutes.
        #[cfg(feature = "verbs")]
        DeviceName::Sim => {
            eprintln!("built with the feature `verbs`, for real devices only");
            ExitCode::FAILURE
        }
        #[cfg(not(feature = "verbs"))]
        DeviceName::Verbs => {
            eprintln!("built without the feature `verbs`");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "it was asked for")]
fn print_list() {
    for entry in entries() {
        let behaviours: Vec<_> = entry.behaviours.iter().map(u8::to_string).collect();
        println!("{:?}\t{}\t{}", entry.speed, behaviours.join(","), entry.name);
    }
}

#[allow(clippy::print_stdout, reason = "it was asked for")]
fn record(runs: &Path, into: &Path) -> ExitCode {
    match Report::record(runs, into) {
        Ok(said) => {
            said.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the report, if the arguments say so.
fn write(args: &Args, report: &Report) -> Check {
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))
}

/// Writes the report and compares it, as the arguments say.
fn conclude(args: &Args, report: &Report) -> Check {
    write(args, report)?;
    let Some(path) = &args.recorded else { return Ok(()) };
    let mut recorded = Report::recorded(path)?;
    if let Some(driver) = args.driver {
        for findings in recorded.scenarios.values_mut() {
            findings.drivers.retain(|name, _| name == driver.name());
        }
    }
    report.compare(&recorded, args.speed)
}

fn on(args: &Args, add: impl FnOnce(&mut Set)) -> ExitCode {
    let report = Report::new(args.environment());
    if let Err(failure) = write(args, &report) {
        eprintln!("{failure}");
        return ExitCode::FAILURE;
    }
    let report = Arc::new(Mutex::new(report));
    let mut set = Set::new(Plan::of(args), Arc::clone(&report));
    add(&mut set);
    let trials = set.into_trials();
    // A filter that matches nothing must not look like success.
    if trials.is_empty() {
        eprintln!("no scenario is called that");
        return ExitCode::FAILURE;
    }
    // Fast scenarios run one at a time, because they measure quiet periods, descriptors and heap. Slow ones only
    // wait.
    let threads = match args.speed {
        Speed::Fast => 1,
        Speed::Slow => trials.len(),
    };
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::default() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Err(failure) = conclude(args, &report.lock().unwrap_or_else(PoisonError::into_inner)) {
        eprintln!("{failure}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
