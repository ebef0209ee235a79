//! `cargo xtask faults`: faults on the real kernel. The program compares the run with the list of scenarios.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::{command, guest, host};

/// The arguments of `cargo xtask faults`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel of the VM: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
    /// The backend of cmid-verbs
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// The slow scenarios, which take minutes
    #[arg(long)]
    slow: bool,
    /// Only scenarios with one of these strings in their name, fast or slow, with all their drivers; nothing is
    /// recorded
    names: Vec<String>,
}

/// Builds the program, and runs it in the VM.
pub(crate) fn command(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmid-faults", "--features", "verbs"], &[])?;
    let speed = if arguments.slow { "slow" } else { "fast" };
    let all = format!("@faults run --speed {speed} --report %faults-reports/{{environment}}-{speed}.json");
    let text = if arguments.names.is_empty() { &all } else { "@faults run" };
    let mut line = command::line(context, arguments.kernel, arguments.backend, Transport::Rxe, text)?;
    line.words.extend(arguments.names.iter().map(Into::into));
    line.begin()?;
    let (kernel, timeout, writable) = (arguments.kernel, Duration::from_secs(900), line.folders());
    guest::run(&[Options { kernel, timeout, writable, ..Options::default() }], &line.words)
}
