//! The conformance suite in the programme: its runs, and their comparison with the recorded results.

use anyhow::Result;
use cmid_conformance::{Report, Speed};
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::checks;
use crate::context::Context;
use crate::reports::Suite;
use crate::{guest, scripts};

pub(crate) const SUITE: Suite = Suite("conformance");
/// The name of the results on the simulator.
const SIM: &str = "sim";
/// The driver of the quick run.
const QUICK_DRIVER: &str = "epoll";
/// Naming it gives a build folder of its own.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Seconds. The longest time-out of the kernel is 17 minutes, and a minute follows it; emulation slows the rest.
const SLOW_LIMIT: u64 = 1500;

/// Runs all tests of the workspace, including the suite on the simulator.
pub(crate) fn tests(context: &mut Context) -> Result<()> {
    let report = SUITE.new_report(context, SIM, Speed::Fast)?;
    let result = context.cargo(&["test", "--workspace", "--all-features"], &[("CMID_REPORT", report.as_os_str())]);
    conclude(context, SIM, Speed::Fast, result)
}

/// Runs the fast scenarios on soft-RoCE, in the VM.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let job = job(context, kernel, Speed::Fast, backend)?;
    let result = guest::run(kernel, limit, &job.command, vec![SUITE.reports(context)?]);
    conclude(context, &backend.environment(kernel), Speed::Fast, result)
}

/// The same with ibv_post_send in the place of ibv_wr_post.
pub(crate) fn with_classic_posts(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let mut job = job(context, kernel, Speed::Fast, backend)?;
    job.command.splice(0..0, ["env", "CMID_POST_CALLS=classic"].map(Into::into));
    let result = guest::run(kernel, limit, &job.command, vec![SUITE.reports(context)?]);
    conclude(context, &backend.environment(kernel), Speed::Fast, result)
}

/// The same with io-epoll only, for the daily programme. The drivers do not depend on the backend.
pub(crate) fn quickly(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    with_one_driver(context, kernel, backend, limit, job(context, kernel, Speed::Fast, backend)?)
}

/// The same, built with the bindings of cmid-verbs instead of rdma-sys.
pub(crate) fn with_own_bindings(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let build = ["build", "--release", "-p", "cmid-conformance", "--features", "verbs-prebuilt", "--target", TARGET];
    checks::without_pkg_config(context, &build)?;
    let mut job = job(context, kernel, Speed::Fast, backend)?;
    let built = context.target().join(TARGET).join("release/conformance");
    for word in job.command.iter_mut().filter(|word| **word == context.release("conformance")) {
        *word = built.clone().into();
    }
    with_one_driver(context, kernel, backend, limit, job)
}

fn with_one_driver(context: &Context, kernel: Kernel, backend: Backend, limit: u64, mut job: guest::Job) -> Result<()> {
    job.command.extend(["--driver", QUICK_DRIVER].map(Into::into));
    let result = guest::run(kernel, limit, &job.command, vec![SUITE.reports(context)?]);
    let environment = backend.environment(kernel);
    let mut expected = recorded(context, &environment)?;
    for findings in expected.scenarios.values_mut() {
        findings.drivers.retain(|driver, _| driver == QUICK_DRIVER);
    }
    SUITE.conclude(context, &environment, Speed::Fast, result, &expected)
}

/// Runs the slow scenarios on both kernels and backends, at the same time, because they only wait.
pub(crate) fn slow(context: &mut Context) -> Result<()> {
    let jobs = Backend::ON_BOTH_KERNELS.map(|(kernel, backend)| job(context, kernel, Speed::Slow, backend));
    let jobs = jobs.into_iter().collect::<Result<_>>()?;
    let result = guest::run_at_once(jobs, SLOW_LIMIT, &SUITE.reports(context)?);
    let concluded = Backend::ON_BOTH_KERNELS
        .map(|(kernel, backend)| conclude(context, &backend.environment(kernel), Speed::Slow, Ok(())));
    result?;
    concluded.into_iter().collect()
}

fn job(context: &Context, kernel: Kernel, speed: Speed, backend: Backend) -> Result<guest::Job> {
    let environment = backend.environment(kernel);
    let mut arguments = vec!["conformance", "--device", "verbs", "--speed", speed.name()];
    let shim = scripts::shim(context).display().to_string();
    // Linux 6.1 does not implement the method.
    if kernel != Kernel::V6_1 {
        arguments.extend(["--rereg-shim", &shim]);
    }
    let mut command = scripts::program(context, backend, &arguments);
    command.extend(["--report".into(), SUITE.new_report(context, &environment, speed)?.into()]);
    Ok(guest::Job { name: format!("conformance-{environment}-{}", speed.name()), kernel, command })
}

/// The recorded results of an environment. Empty if there are none.
fn recorded(context: &Context, environment: &str) -> Result<Report> {
    Ok(SUITE.recorded(context, environment)?.unwrap_or_else(|| Report::new(environment)))
}

/// Compares a run with the recorded results.
pub(crate) fn conclude(context: &Context, environment: &str, speed: Speed, result: Result<()>) -> Result<()> {
    SUITE.conclude(context, environment, speed, result, &recorded(context, environment)?)
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    let kernels = Backend::ON_BOTH_KERNELS.map(|(kernel, backend)| backend.environment(kernel));
    let siw = Backend::ON_IWARP.map(|(kernel, backend)| backend.iwarp_environment(kernel));
    SUITE.record::<cmid_conformance::Outcome>(context, &[&[SIM.to_owned()], &kernels[..], &siw[..]].concat())
}
