//! The program of `cargo xtask bench`: measures, compares with the limits, and records the figures for the report.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line program talks to people")]

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use cmid_bench::cases::SIZES;
use cmid_bench::cmtime;
use cmid_bench::counting::{self, CASES, Counts, LEVELS};
use cmid_bench::limits::{ALLOCATIONS, OBJECTS};
use cmid_bench::memory::{self, Allocator};
use cmid_bench::report;
use cmid_bench::results::OfCore;
use cmid_bench::verdict::{self, Verdict};

#[global_allocator]
static ALLOCATOR: &Allocator = &stats_alloc::INSTRUMENTED_SYSTEM;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count the instructions of every case, and print them
    Counts {
        /// The numbers of other ids
        #[arg(default_values_t = SIZES[..3].to_vec())]
        ids: Vec<usize>,
        /// Keep callgrind's files here, as LEVEL-IDS/CASE
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// Measure the exact figures, with up to 100,000 ids, and compare with the limits
    Check,
    /// Measure the exact figures, compare with the limits, and record them for the report
    Record,
    /// Record the output of cmtime and of rdma-core's cmtime in a folder, and print the comparison
    Cmtime {
        folder: PathBuf,
        /// The VM's kernel
        kernel: String,
    },
    /// Run all steps at a level, for callgrind
    #[command(hide = true)]
    Run {
        /// core or drive
        level: String,
        /// The number of other ids
        ids: usize,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Counts { ids, keep } => print(&Counts::take(&env::current_exe()?, &ids, keep.as_deref())?),
        Command::Check => check(&measure(&SIZES[..3])?),
        Command::Record => record(),
        Command::Cmtime { folder, kernel } => compare_cmtimes(&folder, &kernel),
        Command::Run { level, ids } => counting::run(&level, ids),
    }
}

/// The root of the workspace.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("benches/core is not in a workspace")
}

/// Measures all exact figures.
fn measure(sizes: &[usize]) -> Result<OfCore> {
    let instructions = Counts::take(&env::current_exe()?, sizes, None)?;
    let allocations = memory::allocations(ALLOCATOR);
    let bytes = memory::bytes(ALLOCATOR);
    Ok(OfCore { instructions, allocations, bytes, ..OfCore::default() })
}

/// Prints all figures, and fails with all that exceed a limit.
fn check(core: &OfCore) -> Result<()> {
    let verdicts = Verdict::all(&core.instructions)?;
    for verdict in &verdicts {
        let (worst, limit, with_room) = (verdict.worst(), verdict.row.limits[verdict.level], verdict.with_room());
        println!("{worst:>8}, with room {with_room:>8}, of at most {limit:>6}: {verdict}");
    }
    for object in OBJECTS {
        let bytes = core.bytes.get(object.name).with_context(|| format!("{} was not measured", object.what))?;
        println!("{bytes:>8} of at most {:>6}: bytes of {}", object.limit, object.what);
    }
    let allocations: usize = core.allocations.values().flat_map(|cases| cases.values()).sum();
    println!("{allocations:>8} of at most {ALLOCATIONS:>6}: allocations in {} steps of each case", memory::STEPS);
    let beyond = verdict::beyond(&verdicts, &core.allocations, &core.bytes);
    ensure!(beyond.is_empty(), "beyond their limits:\n{}", beyond.join("\n"));
    Ok(())
}

fn record() -> Result<()> {
    let mut core = measure(&SIZES)?;
    check(&core)?;
    core.bytes_per_id = SIZES.into_iter().map(|ids| (ids, memory::bytes_per_id(ALLOCATOR, ids))).collect();
    core.write(root()?)
}

fn compare_cmtimes(folder: &Path, kernel: &str) -> Result<()> {
    let section = cmtime::section(folder, kernel)?;
    section.write_cmtime(root()?)?;
    print!("{}", report::render_section(&section)?);
    Ok(())
}

fn print(counts: &Counts) -> Result<()> {
    for level in LEVELS {
        for case in CASES {
            let by_ids = counts.of(level, case)?.iter().map(|(ids, count)| format!("{count:>8} at {ids}"));
            println!("{level:<6} {case:<18}{}", by_ids.collect::<String>());
        }
    }
    Ok(())
}
