//! Faults on the real kernel: the run in the VM. Its program compares the run with the list of scenarios.

use anyhow::Result;
use clap::Args;
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::reports::Suite;
use crate::{guest, host, scripts};

const SUITE: Suite = Suite("faults");
/// Seconds.
const LIMIT: u64 = 900;
/// The driver of the daily run. The behaviour is that of the kernel and of the core, so one is enough.
const DAILY: Option<&str> = Some("epoll");

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

/// `cargo xtask faults`: builds the program, and runs it in the VM.
pub(crate) fn command(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmid-faults", "--features", "verbs"], &[])?;
    let (kernel, backend) = (arguments.kernel, arguments.backend);
    if !arguments.names.is_empty() {
        let names = arguments.names.iter().map(String::as_str);
        let command = ["faults", "run"].into_iter().chain(names).collect::<Vec<_>>();
        return guest::run(kernel, LIMIT, &scripts::program(context, backend, &command), Vec::new());
    }
    run(context, kernel, backend, if arguments.slow { "slow" } else { "fast" }, None, LIMIT)
}

/// The fast scenarios on one driver.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    run(context, kernel, backend, "fast", DAILY, limit)
}

/// All scenarios on all their drivers.
pub(crate) fn at_length(context: &mut Context) -> Result<()> {
    for (kernel, backend) in Backend::ON_BOTH_KERNELS {
        for speed in ["fast", "slow"] {
            run(context, kernel, backend, speed, None, LIMIT)?;
        }
    }
    Ok(())
}

/// Runs scenarios of a speed, with one driver or with all.
fn run(
    context: &Context,
    kernel: Kernel,
    backend: Backend,
    speed: &str,
    driver: Option<&str>,
    limit: u64,
) -> Result<()> {
    let mut arguments = vec!["faults", "run", "--speed", speed];
    arguments.extend(driver.iter().flat_map(|driver| ["--driver", driver]));
    let mut command = scripts::program(context, backend, &arguments);
    command.extend(["--report".into(), SUITE.new_report(context, &backend.environment(kernel), speed)?.into()]);
    guest::run(kernel, limit, &command, vec![SUITE.reports(context)?])
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    SUITE.record(context, "--package cmid-faults --features verbs", "record")
}
