//! `cmid-check` in one machine and between two: each report becomes a column of docs/devices.md.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::{guest, scripts};

/// The time limit in seconds.
const LIMIT: u64 = 300;

/// On soft-RoCE.
pub(crate) fn on_roce(context: &mut Context) -> Result<()> {
    between_machines(context, Transport::Rxe)
}

/// On soft-iWARP.
pub(crate) fn on_iwarp(context: &mut Context) -> Result<()> {
    between_machines(context, Transport::Siw)
}

/// In one machine, on both transports and kernels.
pub(crate) fn on_one_machine(context: &mut Context) -> Result<()> {
    for (kernel, transport) in
        [(Kernel::V6_1, Transport::Rxe), (Kernel::V6_12, Transport::Rxe), (Kernel::V6_12, Transport::Siw)]
    {
        let report = new_report(context, &format!("{transport}-{kernel}.json"))?;
        let words = "cmid-check --backend kernel --address 10.99.0.1 --connections 50 --verbose --json";
        let mut command = scripts::program(context, Backend::Kernel, &words.split(' ').collect::<Vec<_>>());
        command.push(report.clone().into());
        let options = Options { counted_clock: true, ..machine(context, kernel, transport)? };
        guest::run_with(&options, &command).with_context(|| report.display().to_string())?;
    }
    Ok(())
}

fn between_machines(context: &Context, transport: Transport) -> Result<()> {
    let report = new_report(context, &format!("{transport}-6.12-two-machines.json"))?;
    let variables = [("ours", context.release("cmid-check").into()), ("report", report.clone().into())];
    let command = scripts::script(scripts::CHECK, Backend::Kernel, &variables);
    let machine = machine(context, Kernel::V6_12, transport)?;
    let status = cmid_softroce::run_machines(&[machine.clone(), machine], &command)?;
    ensure!(status == 0, "in one of the VMs: exit status {status}");
    ensure!(report.exists(), "the run left no report at {}", report.display());
    Ok(())
}

fn machine(context: &Context, kernel: Kernel, transport: Transport) -> Result<Options> {
    let (timeout, writable) = (Duration::from_secs(LIMIT), vec![reports(context)?]);
    Ok(Options { kernel, transport, timeout, writable, ..Options::default() })
}

/// The path of a report, without that of an earlier run.
fn new_report(context: &Context, name: &str) -> Result<PathBuf> {
    let report = reports(context)?.join(name);
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    Ok(report)
}

fn reports(context: &Context) -> Result<PathBuf> {
    let directory = context.target().join("check-reports");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

/// Makes the reports of the last runs the recorded ones.
pub(crate) fn record(context: &Context) -> Result<()> {
    for entry in fs::read_dir(reports(context)?).context("the reports of cmid-check")? {
        let path = entry.context("the reports of cmid-check")?.path();
        let name = path.file_name().context("a file has a name")?;
        let recorded = context.root.join("verbs/check/results").join(name);
        fs::copy(&path, &recorded).with_context(|| recorded.display().to_string())?;
        println!("cmid-check: {}", recorded.display());
    }
    Ok(())
}
