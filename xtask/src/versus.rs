//! `cargo xtask versus`: cmid against C, in the VM.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_softroce::{Kernel, packages};

use crate::context::{Context, output};
use crate::{guest, host};

/// Where the recorded figures are; docs/performance.md is rendered from them.
const RESULTS: &str = "benches/results/versus-c.json";
/// The limit in seconds for all figures.
const LONG: u64 = 1800;
/// The limit in seconds for those that the tests take.
pub(crate) const LIMIT: u64 = 300;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only what is exact and has a limit, as the tests do
    #[arg(long)]
    quick: bool,
    /// Make the figures the recorded ones
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// Only these parts: counts, idle, latency
    #[arg(long, value_name = "PART", value_delimiter = ',', conflicts_with = "record")]
    parts: Vec<String>,
    /// The number of virtual CPUs. With two of them, ping-pongs that poll for completions are compared too
    #[arg(long, default_value_t = 1, value_name = "N")]
    smp: u32,
}

/// The command: builds everything, runs it in the VM, and keeps the figures if that is asked for.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    let features = "cmid-versus/verbs,rping/verbs";
    context
        .cargo(&["build", "--release", "--bins", "-p", "cmid-versus", "-p", "rping", "--features", features], &[])?;
    prepare(context)?;
    if arguments.quick {
        return guest::run(context.kernel, LIMIT, &command(context, context.kernel), Vec::new());
    }
    let directory = context.target().join("versus");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let figures = directory.join("figures.json");
    let mut command = measure(context);
    command.extend(["--into".into(), figures.clone().into_os_string()]);
    if !arguments.parts.is_empty() {
        command.extend(["--parts".into(), arguments.parts.join(",").into()]);
    }
    let measured = guest::run_with_cpus(context.kernel, LONG, arguments.smp, &command, vec![directory]);
    if arguments.record {
        // A limit that does not hold makes the figures no less true.
        fs::copy(&figures, context.root.join(RESULTS)).context(RESULTS)?;
    }
    measured
}

/// The step of every day: the programs are built.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    let mut command = measure(context);
    command.push("--quick".into());
    command
}

/// Valgrind, and the C program.
pub(crate) fn prepare(context: &mut Context) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    let program = program(context);
    if let Some(directory) = program.parent() {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let folder = context.root.join("versus/c");
    let mut sources = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    ensure!(!sources.is_empty(), "no C program in {}", folder.display());
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).args(sources);
    output(compiler.args(["-lrdmacm", "-libverbs"]))?;
    Ok(())
}

fn program(context: &Context) -> PathBuf {
    context.release("versus-c")
}

/// The command to run in the VM.
fn measure(context: &Context) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![context.release("versus").into(), "measure".into()];
    command.extend(["--c".into(), program(context).into(), "--rping".into(), context.release("rping").into()]);
    command
}
