//! `cargo xtask differential`: random programs of calls on the simulator and on the VM's kernel, which must agree.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context as _, Result};
use clap::Args;
use cmid_softroce::Kernel;

use crate::context::Context;
use crate::{guest, host};

/// Seconds that the step of every day gives to new programs; what was begun is finished.
const SHORT: u64 = 70;
/// Its first program. The same every day: what was found once is found again.
const FIRST_SEED: u64 = 1;
/// More than fit.
const MOST: u64 = 100_000;

/// What is knowingly different; that it is up to date is a test of `cmid-differential`.
const DOCUMENT: &str = "docs/differences.md";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many programs
    #[arg(long, default_value_t = 2000, value_name = "N")]
    programs: u64,
    /// The seed of the first
    #[arg(long, default_value_t = FIRST_SEED, value_name = "S")]
    seed: u64,
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
    /// Run this one only, and show what both do; in the form that a disagreement is reported in
    #[arg(long, value_name = "JSON")]
    program: Option<String>,
    /// The limit in seconds for all of it
    #[arg(long, default_value_t = 3600, value_name = "S")]
    timeout: u64,
}

impl Arguments {
    pub(crate) const fn kernel(&self) -> Kernel {
        self.kernel
    }
}

/// Builds what the VM runs, and runs it there.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmid-differential", "--features", "verbs"], &[])?;
    let mut command = program(context, arguments.kernel);
    command.extend(["--seed".into(), arguments.seed.to_string().into()]);
    command.extend(["--programs".into(), arguments.programs.to_string().into()]);
    if let Some(program) = &arguments.program {
        command.extend(["--program".into(), program.into()]);
    }
    guest::run(arguments.kernel, arguments.timeout, &command, Vec::new())
}

/// The step of every day: as many programs as there is time for.
pub(crate) fn command(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let mut command = program(context, kernel);
    let values = [("--seed", FIRST_SEED), ("--programs", MOST), ("--seconds", SHORT)];
    command.extend(values.into_iter().flat_map(|(name, value)| [name.into(), value.to_string().into()]));
    command
}

fn program(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let mut command = vec![context.release("differential").into_os_string()];
    if kernel == Kernel::V6_1 {
        command.push("--old".into());
    }
    command
}

/// Writes [`DOCUMENT`].
pub(crate) fn write(context: &Context) -> Result<()> {
    fs::write(context.root.join(DOCUMENT), cmid_differential::differences::render()).context(DOCUMENT)
}
