//! `cargo xtask bench`: measures the core's costs, checks their limits, and writes a report.

use anyhow::Result;
use clap::Args;
use cmid_softroce::packages;

use crate::context::Context;
use crate::reports;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only measure the exact costs, with up to 100,000 ids, and fail beyond a limit
    #[arg(long, conflicts_with = "tighten")]
    check: bool,
    /// First set the limits (benches/core/src/limits.rs) to the current values
    #[arg(long)]
    tighten: bool,
}

pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    if arguments.check {
        return check(context);
    }
    if arguments.tighten {
        program(context, &["check", "--tighten"])?;
    }
    record(context)?;
    reports::render(context)
}

/// Checks the limits of instructions, allocations and bytes.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    program(context, &["check"])
}

/// Measures everything, with up to 1,000,000 ids.
fn record(context: &Context) -> Result<()> {
    program(context, &["record"])
}

/// Runs the program of `benches/`, which counts with valgrind.
pub(crate) fn program(context: &Context, arguments: &[&str]) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    let run = ["run", "--profile", "bench", "--quiet", "--package", "cmid-bench", "--"];
    context.cargo(&[&run, arguments].concat(), &[])
}
