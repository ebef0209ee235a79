//! `cargo xtask differential`: runs random programs of calls on the simulator and on the VM's kernel, which must
//! agree.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::{guest, host};

/// The time in seconds for new programs in the daily step, if enough agree by then.
const SHORT: u64 = 70;
/// Seconds after which no new program begins in the VM. Less than [`LIMIT`], because the VM has to boot and to finish
/// programs.
const DEADLINE: u64 = 300;
/// The time limit in seconds of the daily step.
pub(crate) const LIMIT: u64 = 420;
/// The number of concurrent programs where the guest's clock counts instructions.
const AT_ONCE: u64 = 200;
/// The same on soft-iWARP. One batch of 200 did not end within four minutes of the host's time.
const AT_ONCE_ON_SIW: u64 = 20;
/// The number of programs of the step on soft-iWARP. All but a fiftieth must agree, the others may stay undecided.
const ON_SIW: u64 = 1000;
/// More programs than fit into the time.
const MOST: u64 = 100_000;
/// The time limit in seconds of the long steps.
pub(crate) const LONG_LIMIT: u64 = 3600;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The number of programs
    #[arg(long, default_value_t = 2000, value_name = "N")]
    programs: u64,
    /// The seed of the first program; the program `differential` has a default
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    pub(crate) kernel: Kernel,
    /// The backend of cmid-verbs
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// The transport of the RDMA devices: rxe (soft-RoCE) or siw (soft-iWARP)
    #[arg(long, default_value_t)]
    transport: Transport,
    /// Run only this program, in the form in which a disagreement is reported, and show what both sides do
    #[arg(long, value_name = "JSON")]
    program: Option<String>,
    /// Programs with steps of the data path
    #[arg(long)]
    data: bool,
    /// Stop after this many disagreements
    #[arg(long, default_value_t = 3, value_name = "N")]
    failures: u64,
    /// The time limit in seconds
    #[arg(long, default_value_t = 3600, value_name = "S")]
    timeout: u64,
}

/// Builds the programs for the VM, and runs them there.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmid-differential", "--features", "verbs"], &[])?;
    compare(context, arguments, &[("--failures", arguments.failures)])
}

/// The step on soft-iWARP.
pub(crate) fn on_siw(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let arguments = Arguments {
        programs: ON_SIW,
        seed: None,
        kernel,
        backend,
        transport: Transport::Siw,
        program: None,
        data: false,
        failures: 3,
        timeout: limit,
    };
    compare(context, &arguments, &[("--failures", arguments.failures), ("--least", ON_SIW - ON_SIW / 50)])
}

/// Runs programs in the VM, where the clock counts instructions.
fn compare(context: &Context, arguments: &Arguments, values: &[(&str, u64)]) -> Result<()> {
    let mut seeds: Vec<_> = options(&[("--programs", arguments.programs)]).collect();
    seeds.extend(arguments.seed.iter().flat_map(|seed| options(&[("--seed", *seed)]).collect::<Vec<_>>()));
    let mut command = program(context, arguments.kernel, arguments.backend);
    let is_siw = arguments.transport == Transport::Siw;
    let at_once = if is_siw { AT_ONCE_ON_SIW } else { AT_ONCE };
    command.extend(options(&[("--deadline", before(arguments.timeout)), ("--batch", at_once)]));
    command.extend(options(values).chain(seeds.clone()));
    let kinds: Vec<_> = [(arguments.data, "--data"), (is_siw, "--iwarp")]
        .into_iter()
        .filter_map(|(is_set, option)| is_set.then_some(option))
        .collect();
    command.extend(kinds.iter().map(OsString::from));
    match &arguments.program {
        Some(program) => command.extend(["--program".into(), program.into()]),
        // Generated on the host: an emulated CPU takes some twenty times as long.
        None => {
            let name = format!("programs-{}-{}", arguments.transport, arguments.seed.unwrap_or_default());
            let file = context.target().join(name).into_os_string();
            let mut make = Command::new(context.release("differential"));
            let status = make.args(seeds).args(&kinds).arg("--write").arg(&file).status().context("differential")?;
            ensure!(status.success(), "differential --write: {status}");
            command.extend(["--from".into(), file]);
        }
    }
    let options = Options {
        kernel: arguments.kernel,
        transport: arguments.transport,
        timeout: Duration::from_secs(arguments.timeout),
        counted_clock: true,
        memory_mib: 1024,
        ..Options::default()
    };
    guest::run_with(&options, &command)
}

/// The command of the daily step: as many programs as fit into the time.
pub(crate) fn command(context: &Context, kernel: Kernel, backend: Backend) -> Vec<OsString> {
    let mut command = program(context, kernel, backend);
    command.extend(options(&[("--programs", MOST), ("--seconds", SHORT), ("--deadline", DEADLINE)]));
    command
}

/// The command of the long steps. The timers of 6.1 are longer, so it runs fewer programs.
pub(crate) fn at_length(context: &Context, kernel: Kernel, backend: Backend) -> Vec<OsString> {
    let programs = match kernel {
        Kernel::V6_12 | Kernel::Ubuntu => 2000,
        Kernel::V6_1 => 500,
    };
    let mut command = program(context, kernel, backend);
    // All but the few that may stay undecided.
    let least = programs - programs / 50;
    let values = [("--programs", programs), ("--least", least), ("--deadline", before(LONG_LIMIT))];
    command.extend(options(&values));
    command
}

fn options(values: &[(&str, u64)]) -> impl Iterator<Item = OsString> {
    values.iter().flat_map(|(name, value)| [name.into(), value.to_string().into()])
}

/// The time after which no new program begins, so that all end within the limit.
const fn before(limit: u64) -> u64 {
    limit - limit / 5
}

fn program(context: &Context, kernel: Kernel, backend: Backend) -> Vec<OsString> {
    // Each concurrent program needs a few descriptors.
    let mut command = vec!["prlimit".into(), "--nofile=65536:65536".into()];
    command.push(context.release("differential").into_os_string());
    command.extend(["--backend", backend.name()].map(OsString::from));
    if kernel == Kernel::V6_1 {
        command.push("--old".into());
    }
    command
}
