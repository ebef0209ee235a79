//! `cargo xtask differential`: runs random programs of calls on the simulator and on the VM's kernel, which must
//! agree.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::{self, Context};
use crate::{command, guest, host};

/// The number of concurrent programs where the guest's clock counts instructions.
const AT_ONCE: u64 = 200;
/// The same on soft-iWARP. One batch of 200 did not end within four minutes of the host's time.
const AT_ONCE_ON_SIW: u64 = 20;

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
    /// Stop after the batch with this many disagreements, and show no more
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
    // Each concurrent program needs a few descriptors. No new program begins in the last fifth of the time.
    let Arguments { kernel, backend, transport, timeout, programs, failures, .. } = *arguments;
    let is_siw = transport == Transport::Siw;
    let (batch, deadline) = (if is_siw { AT_ONCE_ON_SIW } else { AT_ONCE }, timeout - timeout / 5);
    let which = selection(programs, arguments.seed, arguments.data, is_siw);
    let text = format!(
        "prlimit --nofile=65536:65536 @differential --backend {{backend}} {{old}} --deadline {deadline} --batch {batch} --failures {failures} {which}"
    );
    let mut line = command::line(context, kernel, backend, transport, &text)?;
    match &arguments.program {
        Some(program) => line.words.extend(["--program".into(), program.into()]),
        None => line.words.extend(["--from".into(), write(context, &which)?.into()]),
    }
    let timeout = Duration::from_secs(timeout);
    let options = Options { kernel, transport, timeout, counted_clock: true, memory_mib: 1024, ..Options::default() };
    guest::run(&[options], &line.words)
}

/// The options that select programs.
fn selection(programs: u64, seed: Option<u64>, data: bool, is_siw: bool) -> String {
    let seed = seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
    format!("--programs {programs}{seed}{}{}", if data { " --data" } else { "" }, if is_siw { " --iwarp" } else { "" })
}

/// Writes the programs of the steps on soft-iWARP: `target/differential/--programs1000--iwarp`, and
/// `--programs1000--data--iwarp`.
pub(crate) fn write_for_siw(context: &Context) -> Result<()> {
    [false, true].into_iter().try_for_each(|data| write(context, &selection(1000, None, data, true)).map(drop))
}

/// Generates programs on the host, because an emulated CPU takes some twenty times as long. Returns their file.
fn write(context: &Context, which: &str) -> Result<PathBuf> {
    let file = context.target().join(format!("differential/{}", which.replace(' ', "")));
    fs::create_dir_all(context.target().join("differential")).context("the folder of programs")?;
    let mut make = Command::new(context.release("differential"));
    context::run(make.args(which.split(' ')).arg("--write").arg(&file))?;
    Ok(file)
}
