//! Runs the fault scenarios on the kernel of the project's VM.
#![forbid(unsafe_code)]
// A command-line program talks to people.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cmid_faults::{Entry, Killed, Link, Phase, Report, Role, Speed, alone, entries, expected, lanes};
use cmid_harness::{Check, DriverName, Failure};

#[derive(Debug, Parser)]
#[command(version, about = "Lets things go wrong on a real kernel, and checks what an application observes")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run scenarios, many at a time, each on a link of its own
    Run {
        /// The fast scenarios (seconds) or the slow ones (minutes)
        #[arg(long, value_enum, default_value_t = Speed::Fast)]
        speed: Speed,
        /// With this driver only
        #[arg(long, value_enum)]
        driver: Option<DriverName>,
        /// The number of scenarios that run at a time
        #[arg(long, default_value_t = 12)]
        lanes: usize,
        /// The number of times that each scenario runs
        #[arg(long, default_value_t = 1)]
        times: usize,
        /// Write the outcomes to this file, as JSON
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Only scenarios with one of these strings in their name, fast or slow
        names: Vec<String>,
    },
    /// Add the reports in the folder RUNS to the recorded outcomes in the folder INTO
    Record { runs: PathBuf, into: PathBuf },
    /// Run the scenarios named on standard input on an existing link (started by `run`)
    #[command(hide = true)]
    Lane {
        #[arg(long)]
        link: u8,
    },
    /// Run a peer until it is killed (started by a scenario)
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

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Run { speed, driver, lanes, times, report, names } => run(speed, driver, (lanes, times), report, &names),
        Task::Record { runs, into } => {
            Report::record(&runs, &into).map(|said| said.iter().for_each(|line| println!("{line}")))
        }
        Task::Lane { link } => alone::lane(Link::of(link), &environment()),
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
    speed: Speed,
    driver: Option<DriverName>,
    (lanes, times): (usize, usize),
    report: Option<PathBuf>,
    names: &[String],
) -> Check {
    let wanted = |entry: &Entry| match names {
        [] => entry.speed == speed,
        names => names.iter().any(|name| entry.name.contains(name)),
    };
    let chosen: Vec<_> = entries().iter().filter(|entry| wanted(entry)).copied().collect();
    // A name that matches nothing must not look like success.
    if chosen.is_empty() {
        return Err(Failure("no scenario is called that".into()));
    }
    if let Some(path) = &report {
        Report::new(environment()).write(path)?;
    }
    let drivers = driver.map_or(DriverName::PLAIN.to_vec(), |driver| vec![driver]);
    let found = lanes::run(&chosen.repeat(times), &drivers, lanes, &environment(), |line| println!("{line}"))?;
    if let Some(path) = report {
        found.write(&path)?;
    }
    // A scenario that did not run has not passed.
    let missing = if names.is_empty() { found.compare(&expected(speed, &drivers), speed) } else { Ok(()) };
    let failed: Vec<_> =
        found.scenarios.iter().filter(|(_, findings)| !findings.passed()).map(|(name, _)| name.as_str()).collect();
    println!("{} scenarios, {} failed", chosen.len(), failed.len());
    missing.and(if failed.is_empty() { Ok(()) } else { Err(Failure(format!("failed: {}", failed.join(", ")))) })
}

/// The kernel's release, as set by the VM's environment, and the backend.
fn environment() -> String {
    let release = std::env::var("CMID_KERNEL").unwrap_or_else(|_| "of an unknown release".to_owned());
    format!("Linux {release}, soft-RoCE, {}", cmid_harness::backend())
}

fn killed(role: &str, phase: &str, migrated: bool) -> Check<Killed> {
    let role = [Role::Client, Role::Server].into_iter().find(|known| format!("{known:?}") == role);
    let phase = Phase::ALL.into_iter().find(|known| format!("{known:?}") == phase);
    match (role, phase) {
        (Some(role), Some(phase)) => Ok(Killed { role, phase, migrated }),
        _ => Err(Failure("no such role or phase".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: impl IntoIterator<Item = String>) -> Task {
        Args::try_parse_from(["faults".to_owned()].into_iter().chain(arguments))
            .expect("arguments of this program")
            .task
    }

    #[test]
    fn the_processes_that_a_run_starts_understand_their_arguments() {
        let wire = Link::of(7);
        assert!(matches!(parsed(lanes::arguments(wire)), Task::Lane { link: 7 }));
        for role in [Role::Client, Role::Server] {
            for (phase, migrated) in Phase::ALL.into_iter().flat_map(|phase| [(phase, false), (phase, true)]) {
                let started = Killed { role, phase, migrated };
                let Task::Peer { link: 7, port: 4791, role, phase, migrated } = parsed(started.arguments(wire, 4791))
                else {
                    panic!("{started:?}")
                };
                assert_eq!(killed(&role, &phase, migrated), Ok(started));
            }
        }
    }
}
