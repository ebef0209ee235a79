//! Faults on the kernel of the project's VM, as a program.
#![forbid(unsafe_code)]
// A command-line program talks to people.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use cmid_conformance::{Check, DriverName, Failure};
use cmid_faults::{Entry, Killed, Link, Phase, Role, Speed, alone, entries, lanes};

#[derive(Debug, Parser)]
#[command(version, about = "Lets things go wrong on a real kernel, and checks what an application is told")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run scenarios, many at a time, each on a wire of its own
    Run {
        /// Those that take seconds, or those that take minutes
        #[arg(long, value_enum, default_value_t = Length::Fast)]
        speed: Length,
        /// With this driver only
        #[arg(long, value_enum)]
        driver: Option<DriverName>,
        /// How many at a time
        #[arg(long, default_value_t = 12)]
        lanes: usize,
        /// Each so many times
        #[arg(long, default_value_t = 1)]
        times: usize,
        /// Write the outcomes to this file, as JSON
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Only those whose name has one of these in it, fast or slow
        names: Vec<String>,
    },
    /// Run those that are named on standard input on a wire that has been laid (what `run` starts)
    #[command(hide = true)]
    Lane {
        #[arg(long)]
        link: u8,
    },
    /// Be a peer that is to be killed (what a scenario starts)
    #[command(hide = true)]
    Peer {
        #[arg(long)]
        link: u8,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        role: String,
        #[arg(long)]
        phase: String,
        #[arg(long)]
        migrated: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Length {
    Fast,
    Slow,
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Run { speed, driver, lanes, times, report, names } => run(speed, driver, (lanes, times), report, &names),
        Task::Lane { link } => alone::lane(Link::of(link), &kernel()),
        Task::Peer { link, port, role, phase, migrated } => {
            killed(&role, &phase, migrated).and_then(|killed| alone::peer(Link::of(link), port, killed))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    speed: Length,
    driver: Option<DriverName>,
    (lanes, times): (usize, usize),
    report: Option<PathBuf>,
    names: &[String],
) -> Check {
    let wanted = |entry: &Entry| match names {
        [] => (entry.speed == Speed::Slow) == (speed == Length::Slow),
        names => names.iter().any(|name| entry.name.contains(name)),
    };
    let chosen: Vec<_> = entries().iter().filter(|entry| wanted(entry)).copied().collect();
    // A name that fits nothing must not look like success.
    if chosen.is_empty() {
        return Err(Failure("no scenario is called that".into()));
    }
    let release = release();
    let drivers = driver.map_or(DriverName::ALL.to_vec(), |driver| vec![driver]);
    let found = lanes::run(&chosen.repeat(times), &drivers, lanes, &format!("Linux {release}, soft-RoCE"), |line| {
        println!("{line}")
    })?;
    if let Some(path) = report {
        found.write(&path)?;
    }
    let failed: Vec<_> =
        found.scenarios.iter().filter(|(_, findings)| !findings.passed()).map(|(name, _)| name.as_str()).collect();
    println!("{} scenarios, {} failed", chosen.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { Err(Failure(format!("failed: {}", failed.join(", ")))) }
}

/// What the VM says that it runs.
fn release() -> String {
    std::env::var("CMID_KERNEL").unwrap_or_else(|_| "of an unknown release".to_owned())
}

/// `6.1` of `6.1.0-33-amd64`.
fn kernel() -> String {
    release().split('.').take(2).collect::<Vec<_>>().join(".")
}

fn killed(role: &str, phase: &str, migrated: bool) -> Check<Killed> {
    let role = [Role::Client, Role::Server].into_iter().find(|known| format!("{known:?}") == role);
    let phase = Phase::ALL.into_iter().find(|known| format!("{known:?}") == phase);
    match (role, phase) {
        (Some(role), Some(phase)) => Ok(Killed { role, phase, migrated }),
        _ => Err(Failure("no such role or phase".into())),
    }
}
