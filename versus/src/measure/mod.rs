//! What runs in the VM: takes the figures, holds those that are exact against their limits, and writes them down.

mod callgrind;
mod counts;
mod idle;
mod latency;
mod process;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

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
    /// Only these parts: counts, idle, latency
    #[arg(long, value_delimiter = ',', default_value = "counts,idle,latency")]
    parts: Vec<String>,
    /// Where the figures go
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
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
    let has = |part: &str| parts.iter().any(|asked| asked == part);
    let drivers: &[&str] = if *quick { &["epoll"] } else { &["epoll", "mio"] };
    let (mut port, mut rows) = (FIRST_PORT, Vec::new());
    // Written after each part: what has been measured is kept whatever becomes of the rest.
    let mut add = |more: Vec<Row>| {
        for row in &more {
            println!("{}", row.told());
        }
        rows.extend(more);
        write(into.as_deref(), &rows)
    };
    if has("idle") {
        add(idle::rows(&mut port)?)?;
    }
    if has("counts") {
        add(counts::active(&programs, drivers, &mut port)?)?;
        if !quick {
            add(counts::passive(&programs, drivers, &mut port)?)?;
        }
    }
    if has("latency") && !quick {
        add(vec![latency::pingpong(&programs, true, &mut port)?])?;
        // Two that poll want two processors.
        if std::thread::available_parallelism()?.get() > 1 {
            add(vec![latency::pingpong(&programs, false, &mut port)?])?;
        }
        for driver in ["epoll", "mio", "blocking"] {
            add(vec![latency::rping(&programs, driver, &mut port)?])?;
        }
    }
    counts::hold(&rows)
}

fn write(into: Option<&Path>, rows: &[Row]) -> Result<()> {
    let Some(file) = into else { return Ok(()) };
    let text = serde_json::to_string_pretty(&section(TITLE, ABOUT, rows))?;
    std::fs::write(file, text + "\n").with_context(|| file.display().to_string())
}

const TITLE: &str = "Against C";
const ABOUT: &str = "`cargo xtask versus`: soft-RoCE in the VM, one virtual CPU, without KVM. Instructions in user space are \
callgrind's; ours and C's (`versus/c/`, `cc -O2`) are counted for the same number of iterations, after a first part for warming \
up, which is not counted. Under valgrind the clock is a system call and not a function of the vDSO.";
