//! `cargo xtask versus`: compares cmid with C, in the VM.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use cmid_softroce::{Options, Transport, packages};

use crate::backend::Backend;
use crate::context::{Context, output};
use crate::{command, guest, host};

/// The folder of recorded figures, from which docs/generated/performance.md is rendered.
const RESULTS: &str = "benches/results";
/// Those of instructions and of idle drivers, which are recorded together.
const WHOLE: &str = "versus-c.json";
/// The time limit in seconds for all figures.
const LONG: u64 = 3600;
/// The time limit in seconds for the figures of the tests.
pub(crate) const LIMIT: u64 = 900;
/// The command for those, once the programs are built.
pub(crate) const QUICK: &str = "@versus measure --c @versus-c --quick";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Record the figures; with `--parts` only those of peers, echo and system calls
    #[arg(long)]
    record: bool,
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    parts: Vec<Part>,
}

/// The parts of the measurement. The program in the VM has the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Instructions
    Counts,
    /// Time per echoed message, also of another crate and of TCP, on a clock of instructions
    Echo,
    /// Wake-ups of idle drivers
    Idle,
    /// Instructions of other crates
    Peers,
    /// System calls of a connection
    Syscalls,
}

/// The command: builds everything, runs it in the VM, and records the figures on request.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    prepare(context)?;
    let kernel = context.kernel;
    let directory = context.target().join("versus");
    // The figures of an earlier run must not be taken for this one's.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
    let parts = if arguments.parts.is_empty() { Part::value_variants() } else { &arguments.parts };
    let mut into: Vec<OsString> = vec!["--into".into(), directory.clone().into_os_string()];
    if parts.iter().any(|part| matches!(part, Part::Peers | Part::Echo)) {
        into.extend(["--peers".into(), build_peers(context)?.into_os_string()]);
    }
    let measure = |parts: Vec<Part>, counted_clock: bool| {
        let names = parts.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        // Nine figures of each row, and three where all are nearly the same.
        let rounds = if counted_clock { 4 } else { 10 };
        let mut command = line(context, &format!("VERSUS_PARTS={rounds} @versus measure --c @versus-c"))?;
        command.extend(into.iter().cloned().chain(["--parts".into(), names.join(",").into()]));
        let (timeout, writable) = (Duration::from_secs(LONG), vec![directory.clone()]);
        let options = Options { kernel, timeout, counted_clock, writable, ..Options::default() };
        if names.is_empty() { Ok(()) } else { guest::run(&[options], &command) }
    };
    // The time of an echo is that of instructions, so that other work on the machine does not count.
    let (counted, timed) = parts.iter().partition(|part| **part == Part::Echo);
    let measured = measure(timed, false).and_then(|()| measure(counted, true));
    // Figures are written only when they are complete. They are also valid if a limit is exceeded.
    for name in files_of(&directory, "json")? {
        let is_whole = arguments.parts.is_empty() || name != WHOLE;
        if arguments.record && is_whole {
            fs::copy(directory.join(&name), context.root.join(RESULTS).join(&name)).context("recording")?;
        }
    }
    measured
}

fn line(context: &Context, text: &str) -> Result<Vec<OsString>> {
    Ok(command::line(context, context.kernel, Backend::default(), Transport::Rxe, text)?.words)
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

/// Installs Valgrind, and compiles both programs. cmid's is optimised across crates.
pub(crate) fn prepare(context: &mut Context) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    let versus = ["build", "--profile", "bench", "--bins", "-p", "cmid-versus"];
    context.cargo(&versus, &[])?;
    let program = context.release("versus-c");
    fs::create_dir_all(context.target().join("release")).context("the folder of programs")?;
    let folder = context.root.join("benches/vs-c/c");
    let sources: Vec<_> = files_of(&folder, "c")?.iter().map(|name| folder.join(name)).collect();
    ensure!(!sources.is_empty(), "no C program in {}", folder.display());
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).args(sources);
    output(compiler.args(["-lrdmacm", "-libverbs"]))?;
    Ok(())
}

/// The names of the files in a folder with this extension.
fn files_of(folder: &Path, extension: &str) -> Result<Vec<OsString>> {
    let files = fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten();
    let names = files.map(|entry| entry.file_name());
    Ok(names.filter(|name| Path::new(name).extension().is_some_and(|it| it == extension)).collect())
}
