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
mod faults;
mod fuzz;
mod guest;
mod hazards;
mod host;
mod interop;
mod kernel_rereg;
mod lanes;
mod libclang;
mod memory;
mod mutants;
mod programme;
mod references;
mod replay;
mod reregistration;
mod rows;
mod sanitize;
mod softroce;
mod step;
mod tables;
mod tools;
mod versus;
mod waits;

use clap::{Parser, Subcommand};
use cmid_softroce::Kernel;
use context::Context;
use programme::Programme;
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
    /// Render what is generated in docs/: tables, memory, unsafe code, differences, and the results of rows and of faults
    Diagrams {
        /// Only say whether they are up to date (a test says so of docs/differences.md), and whether the tests that docs/ names exist
        #[arg(long)]
        check: bool,
    },
    /// Make the outcomes of the last runs, of the conformance suite and of faults, the recorded results
    Record,
    /// Let things go wrong on a real kernel, in the VM: what an application is told, and that nothing hangs or leaks
    Faults(faults::Arguments),
    /// Count the core's instructions, measure memory and time, and write docs/performance.md; valgrind is installed if missing
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
    let status = match task {
        Task::Softroce(arguments) => return ExitCode::from(softroce::run(&arguments)),
        Task::Chroot(arguments) => {
            Context::new(Kernel::default()).and_then(|context| chroot::run(&context, &arguments))
        }
        Task::Demo => Context::new(Kernel::default()).and_then(|context| context.cargo(DEMO, &[])),
        Task::Diagrams { check } => Context::new(Kernel::default())
            .and_then(|mut context| if check { check_documents(&mut context) } else { write_documents(&context) }),
        Task::Record => Context::new(Kernel::default())
            .and_then(|context| conformance::record(&context).and_then(|()| faults::record(&context))),
        Task::Faults(arguments) => {
            Context::new(Kernel::default()).and_then(|mut context| faults::command(&mut context, &arguments))
        }
        Task::Differential(arguments) => {
            Context::new(arguments.kernel()).and_then(|mut context| differential::run(&mut context, &arguments))
        }
        Task::Cmtime(arguments) => {
            Context::new(arguments.kernel()).and_then(|mut context| cmtime::run(&mut context, &arguments))
        }
        Task::Sanitize(arguments) => {
            Context::new(arguments.kernel).and_then(|mut context| sanitize::run(&mut context, &arguments))
        }
        Task::Bench(arguments) => {
            Context::new(Kernel::default()).and_then(|mut context| bench::run(&mut context, &arguments))
        }
        Task::Fuzz(arguments) => Context::new(Kernel::default()).and_then(|context| fuzz::run(&context, &arguments)),
        Task::Versus(arguments) => {
            Context::new(Kernel::default()).and_then(|mut context| versus::run(&mut context, &arguments))
        }
        Task::Replay(arguments) => replay::run(&arguments),
        Task::Coverage => Context::new(Kernel::default()).and_then(|mut context| coverage::run(&mut context)),
        Task::Mutants(arguments) => {
            Context::new(Kernel::default()).and_then(|context| mutants::run(&context, &arguments))
        }
        Task::Waits { trace } => waits::check(&trace),
        Task::Test { no_vm, kernel, slow } => {
            Context::new(kernel).and_then(|context| step::run_all(context, programme(slow), !no_vm))
        }
        Task::Step { name, kernel, slow } => {
            Context::new(kernel).and_then(|context| step::run_one(context, programme(slow), &name))
        }
    };
    match status {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn programme(slow: bool) -> Programme {
    if slow { Programme::Slow } else { Programme::Daily }
}

/// The demonstration, as arguments to cargo.
const DEMO: &[&str] = &["run", "--release", "--quiet", "--package", "rping", "--", "demo"];

fn write_documents(context: &Context) -> anyhow::Result<()> {
    tables::write(context)?;
    differential::write(context)?;
    memory::write(context)?;
    rows::write(context)?;
    faults::write(context)
}

fn check_documents(context: &mut Context) -> anyhow::Result<()> {
    tables::check(context)?;
    memory::check(context)?;
    rows::check(context)?;
    faults::check(context)?;
    hazards::check(context)
}
