//! Counts, compares with the limits, and renders the report.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line program talks to people")]

use anyhow::Result;
use clap::{Parser, Subcommand};
use cmid_bench::cases::SIZES;
use cmid_bench::counting::{self, CASES, Counts, LEVELS};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Count the instructions of every case, and print them
    Counts {
        /// Among how many ids
        #[arg(default_values_t = SIZES[..3].to_vec())]
        ids: Vec<usize>,
    },
    /// Take all steps at a level, for callgrind
    #[command(hide = true)]
    Run {
        /// core or drive
        level: String,
        /// Among how many
        ids: usize,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().verb {
        Verb::Counts { ids } => print(&Counts::take(&std::env::current_exe()?, &ids)?),
        Verb::Run { level, ids } => counting::run(&level, ids),
    }
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
