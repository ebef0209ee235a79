//! What a person and CI both call: `cargo xtask demo`, `cargo xtask test`, `cargo xtask softroce -- COMMAND`, and more.

#![forbid(unsafe_code)]
// A command-line program talks to people.
#![allow(clippy::print_stdout)]

mod blocking;
mod checks;
mod compile_fail;
mod conformance;
mod context;
mod datagrams;
mod differential;
mod fuzz;
mod guest;
mod hazards;
mod host;
mod interop;
mod kernel_rereg;
mod libclang;
mod memory;
mod programme;
mod references;
mod reregistration;
mod rows;
mod softroce;
mod step;
mod tables;
mod waits;

use clap::{Parser, Subcommand};
use cmid_softroce::Kernel;
use context::Context;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The tasks of this workspace", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a command in a small VM whose kernel has soft-RoCE; the exit status is the command's
    Softroce(softroce::Arguments),
    /// Show rping on the simulator: nothing but Rust is needed
    Demo,
    /// Render the core's tables into docs/tables.md and docs/memory.md, and the conformance results into docs/rows.md
    Diagrams {
        /// Only say whether the files are up to date, and whether the tests that docs/ names exist
        #[arg(long)]
        check: bool,
    },
    /// Make the outcomes of the last conformance runs the recorded results, which later runs are compared with
    Record,
    /// Run random programs of calls on the simulator and on the VM's kernel: they must agree
    Differential(differential::Arguments),
    /// Look for an input that breaks a law, with cargo-fuzz, which is installed if missing
    Fuzz(fuzz::Arguments),
    /// Name the system calls in a trace of `strace -f -T` that waited outside of the loop
    #[command(hide = true)]
    Waits {
        /// The trace
        trace: std::path::PathBuf,
    },
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
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    let status = match verb {
        Verb::Softroce(arguments) => return ExitCode::from(softroce::run(&arguments)),
        Verb::Demo => Context::new(Kernel::default()).and_then(|context| context.cargo(DEMO, &[])),
        Verb::Diagrams { check } => Context::new(Kernel::default())
            .and_then(|mut context| if check { check_documents(&mut context) } else { write_documents(&context) }),
        Verb::Record => Context::new(Kernel::default()).and_then(|context| conformance::record(&context)),
        Verb::Differential(arguments) => {
            Context::new(arguments.kernel()).and_then(|mut context| differential::run(&mut context, &arguments))
        }
        Verb::Fuzz(arguments) => Context::new(Kernel::default()).and_then(|context| fuzz::run(&context, &arguments)),
        Verb::Waits { trace } => waits::check(&trace),
        Verb::Test { slow: true, kernel, .. } => {
            Context::new(kernel).and_then(|context| step::run_all(context, programme::SLOW, true))
        }
        Verb::Test { no_vm, kernel, slow: false } => {
            Context::new(kernel).and_then(|context| step::run_all(context, programme::STEPS, !no_vm))
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

/// The demonstration, as arguments to cargo.
const DEMO: &[&str] = &["run", "--release", "--quiet", "--package", "rping", "--", "demo"];

fn write_documents(context: &Context) -> anyhow::Result<()> {
    tables::write(context)?;
    differential::write(context)?;
    memory::write(context)?;
    rows::write(context)
}

fn check_documents(context: &mut Context) -> anyhow::Result<()> {
    tables::check(context)?;
    memory::check(context)?;
    rows::check(context)?;
    hazards::check(context)
}
