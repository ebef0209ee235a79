//! `cargo xtask cmtime`: the rates of cmid's cmtime and of rdma-core's, in the VM.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::{checks, command, guest, host};

const PROGRAM: &str = "cmtime";
/// In MiB. The kernel has 2,000 QPs.
const MEMORY: u32 = 1024;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The number of connections in each run
    #[arg(long, default_value_t = 1000, value_name = "N")]
    connections: u64,
    /// The number of pairs of runs
    #[arg(long, default_value_t = 7, value_name = "K")]
    pairs: u64,
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    pub(crate) kernel: Kernel,
    /// The time limit in seconds in the VM, for each backend of cmid-verbs
    #[arg(long, default_value_t = 1800, value_name = "S")]
    timeout: u64,
}

/// Measures, and records the results for docs/generated/performance.md.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--profile", "bench", "-p", PROGRAM, "--features", "verbs"], &[])?;
    let folder = context.target().join("cmtime");
    for backend in [Backend::Librdmacm, Backend::Kernel] {
        in_guest(context, arguments, backend, &folder.join(backend.name()))?;
    }
    let folder = folder.to_str().context("the folder's path is not text")?;
    checks::bench(context, &["cmtime", folder, arguments.kernel.series()])
}

/// Runs both programs in the VM. Their output goes to this folder.
fn in_guest(context: &Context, arguments: &Arguments, backend: Backend, folder: &Path) -> Result<()> {
    let Arguments { connections, pairs, kernel, timeout } = *arguments;
    let text = format!("sh cmtime sh @cmtime {{backend}} {connections} 10.99.0.1 compare {pairs}");
    let mut line = command::line(context, kernel, backend, Transport::Rxe, &text)?;
    line.words.push(folder.into());
    let (timeout, writable) = (Duration::from_secs(timeout), vec![folder.to_owned()]);
    guest::run(&[Options { kernel, timeout, memory_mib: MEMORY, writable, ..Options::default() }], &line.words)
}
