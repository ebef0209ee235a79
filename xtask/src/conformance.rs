//! The conformance suite in the programme. Its program compares each run with the recorded results.

use anyhow::{Result, ensure};
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::reports::Suite;
use crate::{guest, scripts};

pub(crate) const SUITE: Suite = Suite("conformance");
/// The driver of the quick run.
const QUICK_DRIVER: &str = "epoll";
/// Naming it gives a build folder of its own.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The names of the duration classes of scenarios.
pub(crate) const FAST: &str = "fast";
const SLOW: &str = "slow";
/// Seconds. The longest time-out of the kernel is 17 minutes, and a minute follows it; emulation slows the rest.
const SLOW_LIMIT: u64 = 1500;

/// Runs all tests of the workspace, including the suite on the simulator, which compares its run. Those of cmid-verbs have
/// steps of their own, one for each of its bindings.
pub(crate) fn tests(context: &mut Context) -> Result<()> {
    let report = SUITE.new_report(context, "sim", FAST)?;
    let words = ["test", "--workspace", "--exclude", "cmid-verbs", "--all-features"];
    context.cargo(&words, &[("CMID_REPORT", report.as_os_str())])?;
    ensure!(report.exists(), "the run left no report at {}", report.display());
    Ok(())
}

/// Runs the fast scenarios on soft-RoCE, in the VM.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    run(context, limit, &job(context, kernel, FAST, backend)?)
}

/// The same with ibv_post_send in the place of ibv_wr_post.
pub(crate) fn with_classic_posts(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let mut job = job(context, kernel, FAST, backend)?;
    job.command.splice(0..0, ["env", "CMID_POST_CALLS=classic"].map(Into::into));
    run(context, limit, &job)
}

/// The same with io-epoll only, for the daily programme. The drivers do not depend on the backend.
pub(crate) fn quickly(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let mut job = job(context, kernel, FAST, backend)?;
    job.command.extend(["--driver", QUICK_DRIVER].map(Into::into));
    run(context, limit, &job)
}

/// The same, with the bindings of rdma-sys instead of those of cmid-verbs.
pub(crate) fn with_rdma_sys(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let words = "build --release -p cmid-conformance --features verbs,cmid-verbs/rdma-sys --target";
    context.cargo(&words.split(' ').chain([TARGET]).collect::<Vec<_>>(), &[])?;
    let mut job = job(context, kernel, FAST, backend)?;
    let built = context.target().join(TARGET).join("release/conformance");
    for word in job.command.iter_mut().filter(|word| **word == context.release("conformance")) {
        *word = built.clone().into();
    }
    job.command.extend(["--driver", QUICK_DRIVER].map(Into::into));
    run(context, limit, &job)
}

/// Runs the slow scenarios on both kernels and backends, at the same time, because they only wait.
pub(crate) fn slow(context: &mut Context) -> Result<()> {
    let jobs = Backend::ON_BOTH_KERNELS.map(|(kernel, backend)| job(context, kernel, SLOW, backend));
    guest::run_at_once(jobs.into_iter().collect::<Result<_>>()?, SLOW_LIMIT, &SUITE.reports(context)?)
}

fn run(context: &Context, limit: u64, job: &guest::Job) -> Result<()> {
    guest::run(job.kernel, limit, &job.command, vec![SUITE.reports(context)?])
}

fn job(context: &Context, kernel: Kernel, speed: &str, backend: Backend) -> Result<guest::Job> {
    let environment = backend.environment(kernel);
    let mut arguments = vec!["conformance", "--device", "verbs", "--speed", speed];
    let shim = scripts::shim(context).display().to_string();
    // Linux 6.1 does not implement the method.
    if kernel != Kernel::V6_1 {
        arguments.extend(["--rereg-shim", &shim]);
    }
    let mut command = scripts::program(context, backend, &arguments);
    command.extend(SUITE.arguments(context, &environment, speed)?);
    Ok(guest::Job { name: format!("conformance-{environment}-{speed}"), kernel, command })
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    SUITE.record(context, "--package cmid-conformance --bin conformance", "--record")
}
