//! Faults on the real kernel: the run in the VM, and the comparison with the list of scenarios.

use anyhow::Result;
use clap::Args;
use cmid_conformance::DriverName;
use cmid_faults::{Outcome, Speed, expected};
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::reports::Suite;
use crate::{guest, host, scripts};

const SUITE: Suite = Suite("faults");
/// Seconds.
const LIMIT: u64 = 900;
/// The driver of the daily run. The behaviour is that of the kernel and of the core, so one is enough.
const DAILY: &[DriverName] = &[DriverName::Epoll];

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
    let speed = if arguments.slow { Speed::Slow } else { Speed::Fast };
    run(context, kernel, backend, speed, &DriverName::ALL, LIMIT)
}

/// The fast scenarios on one driver.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    run(context, kernel, backend, Speed::Fast, DAILY, limit)
}

/// All scenarios on all their drivers.
pub(crate) fn at_length(context: &mut Context) -> Result<()> {
    for (kernel, backend) in Backend::ON_BOTH_KERNELS {
        for speed in [Speed::Fast, Speed::Slow] {
            run(context, kernel, backend, speed, &DriverName::ALL, LIMIT)?;
        }
    }
    Ok(())
}

fn run(
    context: &Context,
    kernel: Kernel,
    backend: Backend,
    speed: Speed,
    drivers: &[DriverName],
    limit: u64,
) -> Result<()> {
    let environment = backend.environment(kernel);
    let mut arguments = vec!["faults", "run", "--speed", speed.name()];
    if let [driver] = drivers {
        arguments.extend(["--driver", driver.name()]);
    }
    let mut command = scripts::program(context, backend, &arguments);
    command.extend(["--report".into(), SUITE.new_report(context, &environment, speed)?.into()]);
    let result = guest::run(kernel, limit, &command, vec![SUITE.reports(context)?]);
    SUITE.conclude(context, &environment, speed, result, &expected(speed, drivers))
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    SUITE.record::<Outcome>(context, &Backend::ON_BOTH_KERNELS.map(|(kernel, backend)| backend.environment(kernel)))
}
