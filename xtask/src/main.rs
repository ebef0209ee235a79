//! Developer and CI tasks: `cargo xtask demo`, `cargo xtask test`, `cargo xtask softroce -- COMMAND`, and more.

#![forbid(unsafe_code)]
// A command-line program prints to standard output.
#![allow(clippy::print_stdout)]

mod backend;
mod checks;
mod chroot;
mod cmtime;
mod command;
mod context;
mod differential;
mod faults;
mod fuzz;
mod guest;
mod host;
mod libclang;
mod mutants;
mod needs;
mod power;
mod programme;
mod reports;
mod runner;
mod sanitize;
mod static_program;
mod step;
mod tools;
mod versus;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use cmid_softroce::Kernel;
use context::Context;
use runner::{Programme, Selection};
use std::ffi::OsString;
use std::process::ExitCode;
use step::OutOfReach;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The tasks of this workspace", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run a command in a VM with soft-RoCE: rxe0 has 10.99.0.1 and 10.99.0.2; the exit status is the command's
    Softroce(guest::Arguments),
    /// Run a command as root in another release of Debian, which debootstrap makes in the cache, with this workspace
    /// and this Rust
    Chroot(chroot::Arguments),
    /// Show rping and replog on the simulator; needs only Rust
    Demo,
    /// Render docs/generated/: tables, memory, differences, the results of rows and of faults, and performance
    Diagrams,
    /// Record the outcomes of the last runs of the conformance suite and of faults, and render them
    Record,
    /// Inject faults on a real kernel, in the VM, and check events, results, hangs and leaks
    Faults(faults::Arguments),
    /// Count the core's instructions, measure memory and time, and write docs/generated/performance.md; valgrind is
    /// installed if missing
    Bench {
        /// Only the step "what the core costs": the exact costs, with up to 100,000 ids, and their limits
        #[arg(long)]
        check: bool,
    },
    /// Search for an input that breaks an invariant, with cargo-fuzz, which is installed if missing
    Fuzz(fuzz::Arguments),
    /// Run random programs of calls on the simulator and on the VM's kernel, which must agree
    Differential(differential::Arguments),
    /// Replay recordings of drivers (docs/trace.md) through the pure core, show each step, and compare
    #[command(disable_help_flag = true)]
    Replay {
        /// Those of cmid-replay; `--help` lists them
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        arguments: Vec<OsString>,
    },
    /// Compare connections per second with those of rdma-core's cmtime, in the VM
    Cmtime(cmtime::Arguments),
    /// Compare cmid with C in the VM: instructions, messages, and the cost of an idle driver
    Versus(versus::Arguments),
    /// Cut the power and the links of three machines that run replog, in VMs; `cargo build --release -p replog
    /// --features replog/verbs` comes first
    Cuts(power::Arguments),
    /// List the lines of cmid-proto that no test runs
    Coverage,
    /// Mutation testing of the core with cargo-mutants; finished shards are not repeated
    Mutants(mutants::Arguments),
    /// Run all checks and tests, stopping at the first that fails
    Test {
        #[command(flatten)]
        selection: Selection,
        /// The kernel of the VM: 6.1 or 6.12
        #[arg(long, default_value_t, conflicts_with = "slow")]
        kernel: Kernel,
        /// Run the slow programme instead, on both kernels: time-outs of up to 17 minutes
        #[arg(long, conflicts_with = "no_vm")]
        slow: bool,
    },
    /// Run one step of the test programme, by its name in the summary, without the steps before it
    Step {
        name: String,
        /// The kernel of the VM: 6.1 or 6.12
        #[arg(long, default_value_t)]
        kernel: Kernel,
        /// Take the step from the slow programme
        #[arg(long)]
        slow: bool,
    },
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    if let Task::Softroce(arguments) = task {
        return ExitCode::from(guest::softroce(&arguments));
    }
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            if error.is::<OutOfReach>() { ExitCode::from(OutOfReach::STATUS) } else { ExitCode::FAILURE }
        }
    }
}

fn run(task: Task) -> Result<()> {
    let on = Context::new;
    let mut context = on(Kernel::default())?;
    match task {
        Task::Softroce(arguments) => ensure!(guest::softroce(&arguments) == 0),
        Task::Chroot(arguments) => chroot::run(&context, &arguments)?,
        Task::Demo => checks::demo(&mut context)?,
        Task::Diagrams => reports::render(&context)?,
        Task::Record => {
            host::prepare(&mut context)?;
            reports::record(&context)?;
        }
        Task::Faults(arguments) => faults::command(&mut context, &arguments)?,
        Task::Differential(arguments) => differential::run(&mut on(arguments.kernel)?, &arguments)?,
        Task::Cmtime(arguments) => cmtime::run(&mut on(arguments.kernel)?, &arguments)?,
        Task::Bench { check: true } => checks::bench(&context, &["check"])?,
        Task::Bench { check: false } => {
            checks::bench(&context, &["record"])?;
            reports::render(&context)?;
        }
        Task::Fuzz(arguments) => fuzz::run(&context, &arguments)?,
        Task::Versus(arguments) => versus::run(&mut context, &arguments)?,
        Task::Replay { arguments } => context.program("--quiet --package cmid-replay", arguments)?,
        Task::Cuts(arguments) => power::cuts(&context, &arguments)?,
        Task::Coverage => checks::coverage(&mut context)?,
        Task::Mutants(arguments) => mutants::run(&context, &arguments)?,
        Task::Test { selection, kernel, slow } => runner::run_all(&on(kernel)?, programme(slow), &selection)?,
        Task::Step { name, kernel, slow } => runner::run_one(on(kernel)?, programme(slow), &name)?,
    }
    Ok(())
}

fn programme(slow: bool) -> Programme {
    if slow { programme::LONG } else { programme::DAILY }
}
