//! What a person and CI both call: `cargo xtask demo`, `cargo xtask test`, `cargo xtask softroce -- COMMAND`, and more.

#![forbid(unsafe_code)]
// A command-line program talks to people.
#![allow(clippy::print_stdout)]

mod bench;
mod blocking;
mod checks;
mod chroot;
mod cmtime;
mod cmtime_results;
mod compile_fail;
mod conformance;
mod context;
mod coverage;
mod datagrams;
mod deny;
mod differential;
mod documents;
mod faults;
mod fuzz;
mod guest;
mod host;
mod interop;
mod kernel_rereg;
mod lanes;
mod libclang;
mod mutants;
mod programme;
mod replay;
mod runner;
mod sanitize;
mod softroce;
mod step;
mod tools;
mod versus;
mod waits;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use cmid_softroce::Kernel;
use context::Context;
use runner::Programme;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The tasks of this workspace", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run what has unsafe code under AddressSanitizer and LeakSanitizer, in the VM
    Sanitize(sanitize::Arguments),
    /// Run a command in a small VM whose kernel has soft-RoCE; the exit status is the command's
    Softroce(softroce::Arguments),
    /// Run a command in another release of Debian, which debootstrap makes in the cache: as root, with this workspace and this Rust
    Chroot(chroot::Arguments),
    /// Show rping on the simulator: nothing but Rust is needed
    Demo,
    /// Render what is generated in docs/: tables, memory, differences, the results of rows and of faults, and performance
    Diagrams,
    /// Make the outcomes of the last runs, of the conformance suite and of faults, the recorded results, and render them
    Record,
    /// Let things go wrong on a real kernel, in the VM: what an application is told, and that nothing hangs or leaks
    Faults(faults::Arguments),
    /// Count the core's instructions, measure memory and time, and write docs/generated/performance.md; valgrind is installed if missing
    Bench(bench::Arguments),
    /// Look for an input that breaks a law, with cargo-fuzz, which is installed if missing
    Fuzz(fuzz::Arguments),
    /// Run random programs of calls on the simulator and on the VM's kernel: they must agree
    Differential(differential::Arguments),
    /// Run what was recorded of a driver (docs/trace.md) through the pure core, show each step, and compare
    Replay(replay::Arguments),
    /// Compare connections per second with those of rdma-core's cmtime, in the VM
    Cmtime(cmtime::Arguments),
    /// Compare cmid with C in the VM: instructions, latency, and what a driver costs that has nothing to do
    Versus(versus::Arguments),
    /// Say which lines of cmid-proto no test runs, and why
    Coverage,
    /// Name the system calls in a trace of `strace -f -T` that waited outside of the loop
    #[command(hide = true)]
    Waits {
        /// The trace
        trace: std::path::PathBuf,
    },
    /// Change the core in one place at a time (cargo-mutants) and see that its tests fail; what has been judged stays judged
    Mutants(mutants::Arguments),
    /// Run all checks and tests, stopping at the first that fails
    Test {
        /// Leave out what runs in the VM (the summary says so)
        #[arg(long)]
        no_vm: bool,
        /// The kernel of the VM: 6.1 or 6.12
        #[arg(long, default_value_t, conflicts_with = "slow")]
        kernel: Kernel,
        /// Run what takes long instead, on both kernels: time-outs of up to 17 minutes
        #[arg(long, conflicts_with = "no_vm")]
        slow: bool,
    },
    /// Run one step of the test programme, by its name in the summary, without those before it
    Step {
        name: String,
        /// The kernel of the VM: 6.1 or 6.12
        #[arg(long, default_value_t)]
        kernel: Kernel,
        /// Take it from the programme that takes long
        #[arg(long)]
        slow: bool,
    },
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    if let Task::Softroce(arguments) = task {
        return ExitCode::from(softroce::run(&arguments));
    }
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let on = Context::new;
    let mut context = on(Kernel::default())?;
    match task {
        Task::Softroce(arguments) => ensure!(softroce::run(&arguments) == 0),
        Task::Chroot(arguments) => chroot::run(&context, &arguments)?,
        Task::Demo => context.cargo(DEMO, &[])?,
        Task::Diagrams => documents::render(&context)?,
        Task::Record => {
            conformance::record(&context)?;
            faults::record(&context)?;
            documents::render(&context)?;
        }
        Task::Faults(arguments) => faults::command(&mut context, &arguments)?,
        Task::Differential(arguments) => differential::run(&mut on(arguments.kernel())?, &arguments)?,
        Task::Cmtime(arguments) => cmtime::run(&mut on(arguments.kernel())?, &arguments)?,
        Task::Sanitize(arguments) => sanitize::run(&mut on(arguments.kernel)?, &arguments)?,
        Task::Bench(arguments) => bench::run(&mut context, &arguments)?,
        Task::Fuzz(arguments) => fuzz::run(&context, &arguments)?,
        Task::Versus(arguments) => versus::run(&mut context, &arguments)?,
        Task::Replay(arguments) => replay::run(&arguments)?,
        Task::Coverage => coverage::run(&mut context)?,
        Task::Mutants(arguments) => mutants::run(&context, &arguments)?,
        Task::Waits { trace } => waits::check(&trace)?,
        Task::Test { no_vm, kernel, slow } => runner::run_all(on(kernel)?, programme(slow), !no_vm)?,
        Task::Step { name, kernel, slow } => runner::run_one(on(kernel)?, programme(slow), &name)?,
    }
    Ok(())
}

fn programme(slow: bool) -> Programme {
    if slow { programme::LONG } else { programme::DAILY }
}

/// The demonstration, as arguments to cargo.
const DEMO: &[&str] = &["run", "--release", "--quiet", "--package", "rping", "--", "demo"];
