//! `cargo xtask differential`: random programs of calls on the simulator and on the VM's kernel, which must agree.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_differential::campaign::{FIRST_SEED, LEAST};
use cmid_softroce::{Kernel, Options};

use crate::context::Context;
use crate::{guest, host};

/// Seconds that the step of every day gives to new programs, if [`LEAST`] agree by then.
const SHORT: u64 = 70;
/// Seconds after which nothing new begins in the VM, of those that [`LIMIT`] gives it: it has to start, and to end what it does.
const DEADLINE: u64 = 300;
/// The limit in seconds for the step of every day.
pub(crate) const LIMIT: u64 = 420;
/// How many programs run at once where the guest's clock waits for them.
const AT_ONCE: u32 = 200;
/// More than fit.
const MOST: u64 = 100_000;
/// The limit in seconds for the steps that take longer.
pub(crate) const LONG_LIMIT: u64 = 3600;

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
    /// Stop after so many that differ
    #[arg(long, default_value_t = 3, value_name = "N")]
    failures: usize,
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
    let seeds: [OsString; 4] = [
        "--seed".into(),
        arguments.seed.to_string().into(),
        "--programs".into(),
        arguments.programs.to_string().into(),
    ];
    let mut command = program(context, arguments.kernel);
    command.extend(["--deadline".into(), before(arguments.timeout).to_string().into()]);
    command.extend(["--batch".into(), AT_ONCE.to_string().into()]);
    command.extend(["--failures".into(), arguments.failures.to_string().into()]);
    command.extend(seeds.clone());
    match &arguments.program {
        Some(program) => command.extend(["--program".into(), program.into()]),
        // Made here: an emulated CPU takes some twenty times as long.
        None => {
            let file = context.target().join(format!("programs-{}", arguments.seed)).into_os_string();
            let mut make = Command::new(context.release("differential"));
            let status = make.args(seeds).arg("--write").arg(&file).status().context("differential")?;
            ensure!(status.success(), "differential --write: {status}");
            command.extend(["--from".into(), file]);
        }
    }
    let timeout = Duration::from_secs(arguments.timeout);
    let options =
        Options { kernel: arguments.kernel, timeout, counted_clock: true, memory_mib: 1024, ..Options::default() };
    guest::run_with(&options, &command)
}

/// The step of every day: as many programs as there is time for.
pub(crate) fn command(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let mut command = program(context, kernel);
    let values = [("--programs", MOST), ("--seconds", SHORT), ("--least", LEAST), ("--deadline", DEADLINE)];
    command.extend(options(&values));
    command
}

/// The steps that take longer. The timers of 6.1 are longer, too.
pub(crate) fn at_length(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let programs = match kernel {
        Kernel::V6_12 | Kernel::Ubuntu => 2000,
        Kernel::V6_1 => 500,
    };
    let mut command = program(context, kernel);
    // All but the few that may stay undecided.
    let values = [("--programs", programs), ("--least", programs - programs / 50), ("--deadline", before(LONG_LIMIT))];
    command.extend(options(&values));
    command
}

fn options(values: &[(&str, u64)]) -> impl Iterator<Item = OsString> {
    let first = ("--seed", FIRST_SEED);
    [first].into_iter().chain(values.iter().copied()).flat_map(|(name, value)| [name.into(), value.to_string().into()])
}

/// When to begin no more, to be done in time.
const fn before(limit: u64) -> u64 {
    limit - limit / 5
}

fn program(context: &Context, kernel: Kernel) -> Vec<OsString> {
    // Each program that runs at once needs a few descriptors.
    let mut command = vec!["prlimit".into(), "--nofile=65536:65536".into()];
    command.push(context.release("differential").into_os_string());
    if kernel == Kernel::V6_1 {
        command.push("--old".into());
    }
    command
}
