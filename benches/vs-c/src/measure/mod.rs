//! The part that runs in the VM: measures the figures, checks the limits of the exact ones, and writes them to a
//! file.

mod callgrind;
mod counts;
mod echo;
mod idle;
mod peers;
mod process;
mod programs;
mod rows;
mod syscalls;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use cmid_bench::results::{Row, Section};
use cmid_verbs::Backend;

use crate::measure::counts::Variant;
use crate::measure::programs::Programs;
use crate::measure::rows::section;

/// Each server has its own port, because a port may stay in use for a while after its connections.
const FIRST_PORT: u16 = 7300;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The C program
    #[arg(long)]
    c: PathBuf,
    /// Only the exact figures with limits
    #[arg(long, conflicts_with = "parts")]
    quick: bool,
    /// Only these parts
    #[arg(
        long,
        value_enum,
        value_name = "PART",
        value_delimiter = ',',
        default_value = "counts,echo,idle,peers,syscalls"
    )]
    parts: Vec<Part>,
    /// The folder for the files of the figures
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// The folder of the programs on other crates, for the parts echo and peers
    #[arg(long, value_name = "FOLDER")]
    peers: Option<PathBuf>,
}

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Instructions.
    Counts,
    /// Time per echoed message, also of another crate and of TCP.
    Echo,
    /// Wake-ups of idle drivers.
    Idle,
    /// Instructions of other crates.
    Peers,
    /// System calls of a connection.
    Syscalls,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { c, quick, parts, into, peers } = arguments;
    let programs = Programs { ours: std::env::current_exe()?, c: c.clone() };
    let drivers: &[&'static str] = if *quick { &["epoll"] } else { &["epoll", "mio"] };
    let on = |backend| drivers.iter().map(move |driver| Variant { driver, backend });
    let variants: Vec<_> = on(Backend::Librdmacm).chain(on(Backend::Kernel)).collect();
    let is_wanted = |part| parts.contains(&part) && (!quick || matches!(part, Part::Counts | Part::Idle));
    let peers = || peers.as_ref().context("--peers is missing");
    let record = |name, title, about, rows: &[Row]| match into {
        Some(folder) if !rows.is_empty() => write(&folder.join(name), &section(title, about, rows)),
        _ => Ok(()),
    };
    let (mut port, mut rows) = (FIRST_PORT, Vec::new());
    if is_wanted(Part::Idle) {
        rows.extend(shown(idle::rows(&mut port)?));
    }
    if is_wanted(Part::Counts) {
        rows.extend(shown(counts::active(&programs, &variants, &mut port)?));
        if !quick {
            rows.extend(shown(counts::passive(&programs, &variants, &mut port)?));
        }
    }
    record("versus-c.json", TITLE, ABOUT, &rows)?;
    if is_wanted(Part::Syscalls) {
        let rows = shown(syscalls::rows(&programs, drivers, &mut port)?);
        record("versus-syscalls.json", syscalls::TITLE, syscalls::ABOUT, &rows)?;
    }
    if is_wanted(Part::Echo) {
        let rows = shown(echo::rows(&programs, peers()?, &mut port)?);
        record("versus-echo.json", echo::TITLE, echo::ABOUT, &rows)?;
    }
    if is_wanted(Part::Peers) {
        let rows = shown(peers::rows(&programs, peers()?, &mut port)?);
        record("versus-peers.json", peers::TITLE, peers::ABOUT, &rows)?;
    }
    counts::hold(&rows)
}

/// Prints figures at once, so that they are visible also if a later measurement fails.
fn shown(rows: Vec<Row>) -> Vec<Row> {
    rows.iter().for_each(|row| println!("{}", rows::text(row)));
    rows
}

/// Writes the file atomically, so that an existing file is complete.
fn write(file: &Path, section: &Section) -> Result<()> {
    let text = serde_json::to_string_pretty(section)?;
    let unfinished = file.with_extension("unfinished");
    std::fs::write(&unfinished, text + "\n").with_context(|| unfinished.display().to_string())?;
    std::fs::rename(&unfinished, file).with_context(|| file.display().to_string())
}

const TITLE: &str = "Against C";

const ABOUT: &str = "`cargo xtask versus`: soft-RoCE in the VM, one virtual CPU, without KVM. Release builds: C's `cc -O2` \
    (`benches/vs-c/c/`), cmid's with link-time optimisation. Instructions in user space are callgrind's, after a warm-up that \
    is not counted. One connection at a time, unless 16 are named.";
