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

use anyhow::{Context as _, Result, ensure};
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
    #[arg(long)]
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
    /// The file for the figures
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// The folder of the programs on other crates
    #[arg(long, value_name = "FOLDER")]
    peers: Option<PathBuf>,
    /// The file for their figures
    #[arg(long, value_name = "FILE")]
    peers_into: Option<PathBuf>,
    /// The file for the echo
    #[arg(long, value_name = "FILE")]
    echo_into: Option<PathBuf>,
    /// The file for the system calls
    #[arg(long, value_name = "FILE")]
    syscalls_into: Option<PathBuf>,
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
    let Arguments { c, quick, parts, into, peers, peers_into, echo_into, syscalls_into } = arguments;
    let programs = Programs { ours: std::env::current_exe()?, c: c.clone() };
    let drivers: &[&'static str] = if *quick { &["epoll"] } else { &["epoll", "mio"] };
    let on = |backend| drivers.iter().map(move |driver| Variant { driver, backend });
    let variants: Vec<_> = on(Backend::Librdmacm).chain(on(Backend::Kernel)).collect();
    let (mut port, mut rows) = (FIRST_PORT, Vec::new());
    let mut add = |more: Vec<Row>| {
        show(&more);
        rows.extend(more);
    };
    if parts.contains(&Part::Idle) {
        add(idle::rows(&mut port)?);
    }
    if parts.contains(&Part::Counts) {
        add(counts::active(&programs, &variants, &mut port)?);
        if !quick {
            add(counts::passive(&programs, &variants, &mut port)?);
        }
    }
    let wanted = |part| peers.as_ref().filter(|_| parts.contains(&part) && !quick);
    let counts_calls = parts.contains(&Part::Syscalls) && !quick;
    let is_measured = !rows.is_empty() || counts_calls || wanted(Part::Peers).is_some() || wanted(Part::Echo).is_some();
    ensure!(is_measured, "nothing is measured: --quick leaves peers, the echo and system calls out");
    if let Some(file) = into.as_ref().filter(|_| !rows.is_empty()) {
        write(file, &section(TITLE, ABOUT, &rows))?;
    }
    if counts_calls {
        let rows = syscalls::rows(&programs, drivers, &mut port)?;
        show(&rows);
        if let Some(file) = syscalls_into {
            write(file, &section(syscalls::TITLE, syscalls::ABOUT, &rows))?;
        }
    }
    if let Some(folder) = wanted(Part::Echo) {
        let rows = echo::rows(&programs, folder, &mut port)?;
        show(&rows);
        if let Some(file) = echo_into {
            write(file, &section(echo::TITLE, echo::ABOUT, &rows))?;
        }
    }
    if let Some(folder) = wanted(Part::Peers) {
        let rows = peers::rows(&programs, folder, &mut port)?;
        show(&rows);
        if let Some(file) = peers_into {
            write(file, &section(peers::TITLE, peers::ABOUT, &rows))?;
        }
    }
    counts::hold(&rows)
}

/// Prints figures at once, so that they are visible also if a later measurement fails.
fn show(rows: &[Row]) {
    for row in rows {
        println!("{}", rows::text(row));
    }
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
