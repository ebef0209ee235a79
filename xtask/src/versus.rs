//! `cargo xtask versus`: compares cmid with C, in the VM.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use cmid_softroce::{Kernel, Options, packages};

use crate::backend::Backend;
use crate::context::{Context, output};
use crate::{guest, host};

/// The recorded figures, from which docs/generated/performance.md is rendered.
const RESULTS: &str = "benches/results/versus-c.json";
/// Those of other crates.
const PEERS: &str = "benches/results/versus-peers.json";
/// The system calls of a connection.
const SYSCALLS: &str = "benches/results/versus-syscalls.json";
/// The time limit in seconds for all figures.
const LONG: u64 = 3600;
/// The time limit in seconds for the figures of the tests.
pub(crate) const LIMIT: u64 = 900;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only the exact figures with limits, as in the tests
    #[arg(long)]
    quick: bool,
    /// Record the figures; with `--parts` only those of peers and system calls
    #[arg(long, conflicts_with = "quick")]
    record: bool,
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', conflicts_with = "quick")]
    parts: Vec<Part>,
    /// The number of virtual CPUs. With two, ping-pongs that poll for completions are compared too
    #[arg(long, default_value_t = 1, value_name = "N")]
    smp: u32,
}

/// The parts of the measurement. The program in the VM has the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Instructions
    Counts,
    /// Wake-ups of idle drivers
    Idle,
    /// Time per message
    Latency,
    /// Instructions of other crates
    Peers,
    /// System calls of a connection
    Syscalls,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Counts => "counts",
            Part::Idle => "idle",
            Part::Latency => "latency",
            Part::Peers => "peers",
            Part::Syscalls => "syscalls",
        }
    }
}

/// The command: builds everything, runs it in the VM, and records the figures on request.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "--bins", "-p", "rping", "--features", "rping/verbs"], &[])?;
    prepare(context)?;
    if arguments.quick {
        return guest::run(context.kernel, LIMIT, &command(context, context.kernel, Backend::default()), Vec::new());
    }
    let directory = context.target().join("versus");
    // The figures of an earlier run must not be taken for this one's.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
    let files = ["figures.json", "peers.json", "syscalls.json"].map(|name| directory.join(name));
    let [figures, of_peers, syscalls] = &files;
    // Nine pairs of each figure.
    let mut command = vec!["env".into(), "VERSUS_PARTS=10".into()];
    command.extend(measure(context));
    command.extend(["--into".into(), figures.clone().into_os_string()]);
    command.extend(["--syscalls-into".into(), syscalls.clone().into_os_string()]);
    if arguments.parts.is_empty() || arguments.parts.contains(&Part::Peers) {
        command.extend(["--peers".into(), build_peers(context)?.into_os_string()]);
        command.extend(["--peers-into".into(), of_peers.clone().into_os_string()]);
    }
    if !arguments.parts.is_empty() {
        let parts: Vec<_> = arguments.parts.iter().map(|part| part.name()).collect();
        command.extend(["--parts".into(), parts.join(",").into()]);
    }
    let (kernel, timeout, cpus) = (context.kernel, Duration::from_secs(LONG), arguments.smp);
    let options = Options { kernel, timeout, cpus, writable: vec![directory], ..Options::default() };
    let measured = guest::run_with(&options, &command);
    // Figures are written only when they are complete. They are also valid if a limit is exceeded.
    for (file, recorded) in files.iter().zip([RESULTS, PEERS, SYSCALLS]) {
        let is_whole = arguments.parts.is_empty() || recorded != RESULTS;
        if arguments.record && is_whole && file.try_exists()? {
            fs::copy(file, context.root.join(recorded)).context(recorded)?;
        }
    }
    measured
}

/// Builds the programs on other crates, and returns their folder. One of the crates compiles rdma-core's headers.
fn build_peers(context: &mut Context) -> Result<PathBuf> {
    packages::ensure(&["cmake"])?;
    let target = context.target().join("peers");
    let manifest = context.root.join("benches/peers/Cargo.toml");
    let [manifest, directory] = [&manifest, &target].map(|path| path.display().to_string());
    context
        .cargo(&["build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", &directory], &[])?;
    Ok(target.join("release"))
}

/// The command of the daily step. The programs must be built.
pub(crate) fn command(context: &Context, _: Kernel, _: Backend) -> Vec<OsString> {
    let mut command = measure(context);
    command.push("--quick".into());
    command
}

/// Installs Valgrind, and compiles both programs. cmid's is optimised across crates.
pub(crate) fn prepare(context: &mut Context) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    let versus = ["build", "--profile", "lto", "--bins", "-p", "cmid-versus", "--features", "cmid-versus/verbs"];
    context.cargo(&versus, &[])?;
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
    let mut command: Vec<OsString> = vec![context.optimized("versus").into(), "measure".into()];
    command.extend(["--c".into(), program(context).into(), "--rping".into(), context.release("rping").into()]);
    command
}
