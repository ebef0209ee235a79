//! What runs in the VM: takes the figures, holds those that are exact against their limits, and writes them down.

mod callgrind;
mod counts;
mod idle;
mod latency;
mod process;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::measure::rows::{Row, section};

/// soft-RoCE's own, on which nothing leaves the device.
const ADDRESS: &str = "10.99.0.1";
/// Each server has a port of its own: a port may stay in use for a while after its connections.
const FIRST_PORT: u16 = 7300;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The C program
    #[arg(long)]
    c: PathBuf,
    /// Our rping
    #[arg(long)]
    rping: PathBuf,
    /// Only what is exact and guards a limit
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', default_value = "counts,idle,latency")]
    parts: Vec<Part>,
    /// Where the figures go
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Instructions.
    Counts,
    /// Wake-ups of drivers that have nothing to do.
    Idle,
    /// Time per message.
    Latency,
}

/// The programs that are compared.
struct Programs {
    ours: PathBuf,
    c: PathBuf,
    rping: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { c, rping, quick, parts, into } = arguments;
    let programs = Programs { ours: std::env::current_exe()?, c: c.clone(), rping: rping.clone() };
    let cpus = std::thread::available_parallelism()?.get();
    let drivers: &[&str] = if *quick { &["epoll"] } else { &["epoll", "mio"] };
    let (mut port, mut rows) = (FIRST_PORT, Vec::new());
    // Told at once: what has been measured is seen whatever becomes of the rest.
    let mut add = |more: Vec<Row>| {
        for row in &more {
            println!("{}", row.told());
        }
        rows.extend(more);
    };
    if parts.contains(&Part::Idle) {
        add(idle::rows(&mut port)?);
    }
    if parts.contains(&Part::Counts) {
        add(counts::active(&programs, drivers, &mut port)?);
        if !quick {
            add(counts::passive(&programs, drivers, &mut port)?);
        }
    }
    if parts.contains(&Part::Latency) && !quick {
        add(vec![latency::pingpong(&programs, true, &mut port)?]);
        // Two that poll want two processors.
        if cpus > 1 {
            add(vec![latency::pingpong(&programs, false, &mut port)?]);
        }
        for driver in ["epoll", "mio", "blocking"] {
            add(vec![latency::rping(&programs, driver, &mut port)?]);
        }
    }
    ensure!(!rows.is_empty(), "nothing is measured: --quick leaves latency out");
    if let Some(file) = into {
        write(file, &about(cpus), &rows)?;
    }
    counts::hold(&rows)
}

/// Only what is complete: that the file is there says so.
fn write(file: &Path, about: &str, rows: &[Row]) -> Result<()> {
    let text = serde_json::to_string_pretty(&section(TITLE, about, rows))?;
    let unfinished = file.with_extension("unfinished");
    std::fs::write(&unfinished, text + "\n").with_context(|| unfinished.display().to_string())?;
    std::fs::rename(&unfinished, file).with_context(|| file.display().to_string())
}

const TITLE: &str = "Against C";

fn about(cpus: usize) -> String {
    let cpus = if cpus == 1 { "one virtual CPU".to_owned() } else { format!("{cpus} virtual CPUs") };
    format!(
        "`cargo xtask versus`: soft-RoCE in the VM, {cpus}, without KVM. Both sides are release builds, C's `cc -O2` \
         (`benches/vs-c/c/`), cmid's without link-time optimisation, unlike the core's own tables. Instructions in user space \
         are callgrind's, counted for the same number of iterations on both sides, after a first part for warming up, \
         which is not counted; they vary a little with the time, and the ratios' spread is shown. Under valgrind the \
         clock is a system call and not a function of the vDSO."
    )
}
