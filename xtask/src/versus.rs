//! `cargo xtask versus`: cmid against C, in the VM.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use cmid_softroce::{Kernel, packages};

use crate::context::{Context, output};
use crate::{guest, host};

/// Where the recorded figures are; docs/generated/performance.md is rendered from them.
const RESULTS: &str = "benches/results/versus-c.json";
/// The limit in seconds for all figures.
const LONG: u64 = 1800;
/// The limit in seconds for those that the tests take.
pub(crate) const LIMIT: u64 = 900;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only what is exact and has a limit, as the tests do
    #[arg(long)]
    quick: bool,
    /// Make the figures the recorded ones
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', conflicts_with_all = ["quick", "record"])]
    parts: Vec<Part>,
    /// The number of virtual CPUs. With two of them, ping-pongs that poll for completions are compared too
    #[arg(long, default_value_t = 1, value_name = "N")]
    smp: u32,
}

/// What is measured; the program in the VM has the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Instructions
    Counts,
    /// Wake-ups of drivers that have nothing to do
    Idle,
    /// Time per message
    Latency,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Counts => "counts",
            Part::Idle => "idle",
            Part::Latency => "latency",
        }
    }
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
    // Those of an earlier run are never taken for this one's.
    if figures.try_exists()? {
        fs::remove_file(&figures).with_context(|| figures.display().to_string())?;
    }
    let mut command = measure(context);
    command.extend(["--into".into(), figures.clone().into_os_string()]);
    if !arguments.parts.is_empty() {
        let parts: Vec<_> = arguments.parts.iter().map(|part| part.name()).collect();
        command.extend(["--parts".into(), parts.join(",").into()]);
    }
    let measured = guest::run_with_cpus(context.kernel, LONG, arguments.smp, &command, vec![directory]);
    // They are written only when they are complete. A limit that does not hold makes them no less true.
    if arguments.record && (measured.is_ok() || figures.try_exists()?) {
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
    let folder = context.root.join("benches/vs-c/c");
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
