//! The conformance suite in the programme: the paths of its reports, and the comparison of a run with the recorded
//! results.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_conformance::{Report, Speed};
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::{guest, kernel_backend, kernel_rereg};

/// The names of the recorded results.
const ENVIRONMENTS: [&str; 5] = ["sim", "6.1", "6.12", "6.1-kernel", "6.12-kernel"];

/// Seconds. The longest time-out of the kernel is 17 minutes, and a minute follows it; emulation slows the rest.
const SLOW_LIMIT: u64 = 1500;

/// The path of the recorded results of an environment. They are part of the source.
fn recorded_path(context: &Context, environment: &str) -> PathBuf {
    context.root.join("tests/conformance/results").join(format!("{environment}.json"))
}

/// The recorded results of an environment. Empty if there are none.
fn recorded(context: &Context, environment: &str) -> Result<Report> {
    let path = recorded_path(context, environment);
    if path.exists() { Ok(Report::read(&path)?) } else { Ok(Report::new(environment)) }
}

/// The directory of the reports of runs.
fn reports(context: &Context) -> Result<PathBuf> {
    let directory = context.target().join("conformance-reports");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

fn report_path(context: &Context, environment: &str, speed: Speed) -> Result<PathBuf> {
    Ok(reports(context)?.join(format!("{environment}-{}.json", name(speed))))
}

fn name(speed: Speed) -> &'static str {
    match speed {
        Speed::Fast => "fast",
        Speed::Slow => "slow",
    }
}

/// Runs all tests of the workspace, including the suite on the simulator.
pub(crate) fn tests(context: &mut Context) -> Result<()> {
    let report = report_path(context, "sim", Speed::Fast)?;
    forget(&report)?;
    let result = context.cargo(&["test", "--workspace", "--all-features"], &[("CMID_REPORT", report.as_os_str())]);
    conclude(context, "sim", Speed::Fast, result)
}

/// Runs the fast scenarios on soft-RoCE, in the VM.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    run_in_guest(context, kernel, limit, Backend::Librdmacm)
}

/// The same with the kernel backend of cmid-verbs.
pub(crate) fn on_kernel_backend(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    run_in_guest(context, kernel, limit, Backend::Kernel)
}

/// The same with io-epoll only, for the daily programme. The drivers do not depend on the backend.
pub(crate) fn on_kernel_backend_quickly(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    let mut job = job(context, kernel, Speed::Fast, Backend::Kernel)?;
    job.command.extend(["--driver", QUICK_DRIVER].map(Into::into));
    let result = guest::run(kernel, limit, &job.command, vec![reports(context)?]);
    let environment = Backend::Kernel.environment(kernel);
    let mut expected = recorded(context, &environment)?;
    for findings in expected.scenarios.values_mut() {
        findings.drivers.retain(|driver, _| driver == QUICK_DRIVER);
    }
    compare(context, &environment, Speed::Fast, result, &expected)
}

/// The driver of the quick run.
const QUICK_DRIVER: &str = "epoll";

/// The same with ibv_post_send in the place of ibv_wr_post.
pub(crate) fn with_classic_posts(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    let mut job = job(context, kernel, Speed::Fast, Backend::Kernel)?;
    job.command.insert(1, kernel_backend::CLASSIC.into());
    let result = guest::run(kernel, limit, &job.command, vec![reports(context)?]);
    conclude(context, &Backend::Kernel.environment(kernel), Speed::Fast, result)
}

fn run_in_guest(context: &Context, kernel: Kernel, limit: u64, backend: Backend) -> Result<()> {
    let job = job(context, kernel, Speed::Fast, backend)?;
    let result = guest::run(kernel, limit, &job.command, vec![reports(context)?]);
    conclude(context, &backend.environment(kernel), Speed::Fast, result)
}

/// Runs the slow scenarios on both kernels and backends, at the same time, because they only wait.
pub(crate) fn slow(context: &mut Context) -> Result<()> {
    let backends = [Backend::Librdmacm, Backend::Kernel];
    let on = |backend| [(Kernel::V6_1, backend), (Kernel::V6_12, backend)];
    let all: Vec<_> = backends.into_iter().flat_map(on).collect();
    let jobs =
        all.iter().map(|&(kernel, backend)| job(context, kernel, Speed::Slow, backend)).collect::<Result<Vec<_>>>()?;
    let result = guest::run_at_once(jobs, SLOW_LIMIT, &reports(context)?);
    let conclude_one =
        |&(kernel, backend): &(Kernel, Backend)| conclude(context, &backend.environment(kernel), Speed::Slow, Ok(()));
    let concluded: Vec<_> = all.iter().map(conclude_one).collect();
    result?;
    concluded.into_iter().collect()
}

fn job(context: &Context, kernel: Kernel, speed: Speed, backend: Backend) -> Result<guest::Job> {
    let environment = backend.environment(kernel);
    let report = report_path(context, &environment, speed)?;
    forget(&report)?;
    let mut command = vec!["env".into(), backend.setting().into(), context.release("conformance").into_os_string()];
    command.extend(["--device", "verbs", "--speed", name(speed), "--report"].map(Into::into));
    command.push(report.into_os_string());
    // Linux 6.1 does not implement the method.
    if kernel != Kernel::V6_1 {
        command.extend(["--rereg-shim".into(), kernel_rereg::shim(context).into_os_string()]);
    }
    Ok(guest::Job { name: format!("conformance-{environment}-{}", name(speed)), kernel, command })
}

/// Removes an old report, so that it cannot be taken for this run's.
fn forget(report: &PathBuf) -> Result<()> {
    if report.exists() {
        fs::remove_file(report).with_context(|| report.display().to_string())?;
    }
    Ok(())
}

/// Compares a run with the recorded results.
fn conclude(context: &Context, environment: &str, speed: Speed, result: Result<()>) -> Result<()> {
    compare(context, environment, speed, result, &recorded(context, environment)?)
}

fn compare(context: &Context, environment: &str, speed: Speed, result: Result<()>, expected: &Report) -> Result<()> {
    let path = report_path(context, environment, speed)?;
    if !path.exists() {
        result?;
        bail!("the run left no report at {}", path.display());
    }
    let run = Report::read(&path)?;
    println!("{}: {} scenarios ran", run.environment, run.scenarios.len());
    result?;
    if !recorded_path(context, environment).exists() {
        println!("nothing is recorded for {environment}: compared with nothing");
        return Ok(());
    }
    let differences = run.differences(expected, speed);
    for difference in &differences {
        println!("{difference}");
    }
    ensure!(
        differences.is_empty(),
        "{} outcomes are not those of tests/conformance/results/{environment}.json; if they should be: cargo xtask record",
        differences.len()
    );
    Ok(())
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    for environment in ENVIRONMENTS {
        let mut results = recorded(context, environment)?;
        for speed in [Speed::Fast, Speed::Slow] {
            let path = report_path(context, environment, speed)?;
            if path.exists() {
                let run = Report::read(&path)?;
                println!("{environment}, {}: {} scenarios", name(speed), run.scenarios.len());
                results.environment.clone_from(&run.environment);
                results.merge(run);
            }
        }
        if !results.scenarios.is_empty() {
            let path = recorded_path(context, environment);
            fs::create_dir_all(path.parent().context("a file of the source")?)?;
            results.write(&path)?;
        }
    }
    Ok(())
}
