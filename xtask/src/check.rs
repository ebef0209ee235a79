//! `cmid-check` between two machines: the report of the client becomes a column of docs/devices.md.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::scripts;

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

fn between_machines(context: &Context, transport: Transport) -> Result<()> {
    let directory = reports(context)?;
    let report = directory.join(format!("{transport}-6.12-two-machines.json"));
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    let variables = [("ours", context.release("cmid-check").into()), ("report", report.clone().into())];
    let command = scripts::script(scripts::CHECK, Backend::Kernel, &variables);
    let machine = |kernel| Options {
        kernel,
        transport,
        timeout: Duration::from_secs(LIMIT),
        writable: vec![directory.clone()],
        ..Options::default()
    };
    let status = cmid_softroce::run_machines(&[Kernel::V6_12; 2].map(machine), &command)?;
    ensure!(status == 0, "in one of the VMs: exit status {status}");
    ensure!(report.exists(), "the run left no report at {}", report.display());
    Ok(())
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
