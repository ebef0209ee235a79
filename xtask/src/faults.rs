//! Faults on the real kernel: the run in the VM, and the comparison with the list of scenarios.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cmid_conformance::DriverName;
use cmid_faults::{Report, Speed, expected};
use cmid_softroce::Kernel;

use crate::context::Context;
use crate::{guest, host};

/// The recorded results, in the order of the columns of the table.
const KERNELS: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];
/// The driver of the everyday run. The behaviour is that of the kernel and of the core, so one is enough.
const EVERYDAY: &[DriverName] = &[DriverName::Epoll];

/// The arguments of `cargo xtask faults`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel of the VM: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
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
    if !arguments.names.is_empty() {
        let mut command = vec![context.release("faults").into_os_string(), "run".into()];
        command.extend(arguments.names.iter().map(OsString::from));
        return guest::run(arguments.kernel, 600, &command, Vec::new());
    }
    let speed = if arguments.slow { Speed::Slow } else { Speed::Fast };
    run(context, arguments.kernel, speed, &DriverName::ALL, 900)
}

/// The daily step.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    run(context, kernel, Speed::Fast, EVERYDAY, limit)
}

/// Runs all scenarios. Linux 6.1 behaves differently while a link is down, which the list of scenarios does not cover
/// yet.
pub(crate) fn at_length(context: &mut Context) -> Result<()> {
    run(context, Kernel::V6_12, Speed::Fast, &DriverName::ALL, 900)?;
    run(context, Kernel::V6_12, Speed::Slow, &DriverName::ALL, 900)
}

fn run(context: &Context, kernel: Kernel, speed: Speed, drivers: &[DriverName], limit: u64) -> Result<()> {
    let report = report_path(context, kernel, speed)?;
    // An old report must not be taken for this run's.
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    let mut command = vec![context.release("faults").into_os_string()];
    command.extend(["run", "--speed", name(speed), "--report"].map(OsString::from));
    command.push(report.clone().into_os_string());
    if let [driver] = drivers {
        command.extend(["--driver", driver.name()].map(OsString::from));
    }
    let result = guest::run(kernel, limit, &command, vec![reports(context)?]);
    if !report.exists() {
        result?;
        bail!("the run left no report at {}", report.display());
    }
    // A scenario that did not run has not passed.
    let differences = Report::read(&report)?.differences(&expected(speed, drivers), speed);
    for difference in &differences {
        println!("{difference}");
    }
    result?;
    ensure!(differences.is_empty(), "{} scenarios have not passed", differences.len());
    Ok(())
}

fn reports(context: &Context) -> Result<PathBuf> {
    let directory = context.target().join("faults-reports");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

fn report_path(context: &Context, kernel: Kernel, speed: Speed) -> Result<PathBuf> {
    Ok(reports(context)?.join(format!("{}-{}.json", kernel.series(), name(speed))))
}

fn name(speed: Speed) -> &'static str {
    match speed {
        Speed::Fast => "fast",
        Speed::Slow => "slow",
    }
}

fn recorded_path(context: &Context, kernel: Kernel) -> PathBuf {
    context.root.join("tests/faults/results").join(format!("{}.json", kernel.series()))
}

fn recorded(context: &Context, kernel: Kernel) -> Result<Report> {
    let path = recorded_path(context, kernel);
    if !path.exists() {
        return Ok(Report::new(format!("Linux {}", kernel.series())));
    }
    let mut report = Report::read(&path)?;
    report.forget_what_is_out_of_date();
    Ok(report)
}

/// Makes the reports of the last runs the recorded results.
pub(crate) fn record(context: &Context) -> Result<()> {
    for kernel in KERNELS {
        let mut results = recorded(context, kernel)?;
        for speed in [Speed::Fast, Speed::Slow] {
            let path = report_path(context, kernel, speed)?;
            if path.exists() {
                results.merge(Report::read(&path)?);
            }
        }
        if !results.scenarios.is_empty() {
            let path = recorded_path(context, kernel);
            fs::create_dir_all(path.parent().context("a file of the source")?)?;
            results.write(&path)?;
        }
    }
    Ok(())
}
