//! `cargo xtask bench`: what the core costs, against its limits, and a report of it.

use anyhow::Result;
use clap::Args;
use cmid_softroce::packages;

use crate::context::Context;
use crate::documents;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only measure what is exact, with up to 100,000 ids, and fail beyond a limit
    #[arg(long, conflicts_with = "tighten")]
    check: bool,
    /// Before anything else, set the limits (benches/core/src/limits.rs) to what is reached now
    #[arg(long)]
    tighten: bool,
}

pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    if arguments.check {
        return check(context);
    }
    packages::ensure(COUNTER)?;
    if arguments.tighten {
        program(context, &["check", "--tighten"])?;
    }
    record(context)?;
    documents::render(context)
}

/// What counts instructions.
const COUNTER: &[&str] = &["valgrind"];

/// Instructions, allocations and bytes keep their limits.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    packages::ensure(COUNTER)?;
    program(context, &["check"])
}

/// Everything, with up to 1,000,000 ids.
fn record(context: &Context) -> Result<()> {
    context.cargo(&["bench", "--package", "cmid-bench", "--features", "scaling", "--bench", "scaling"], &[])?;
    let times = context.target().join("criterion");
    program(context, &["record", "--times", &times.to_string_lossy()])
}

/// Runs the program of `benches/`.
fn program(context: &Context, arguments: &[&str]) -> Result<()> {
    let run = ["run", "--profile", "bench", "--quiet", "--package", "cmid-bench", "--"];
    context.cargo(&[&run, arguments].concat(), &[])
}
