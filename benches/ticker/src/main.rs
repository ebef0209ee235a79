//! Measures the program `ticker`.
//!
//! `ticker-figures measure` measures the time from a tick to its order for three traders: one that polls, one that
//! sleeps in epoll, and one over UDP and TCP. `ticker-figures count` counts the instructions with callgrind.
//! `ticker-figures draw` draws the recorded times.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod count;
mod devices;
mod draw;
mod measure;
mod on_rdma;
mod on_sockets;
mod results;
mod stream;
mod venue;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::devices::{On, on_devices};
use crate::results::Results;

/// Measures the program `ticker`.
#[derive(Debug, Parser)]
struct Figures {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure times, and write them to a file.
    Measure {
        #[command(flatten)]
        on: On,
        /// The file; what it has about instructions stays.
        #[arg(long)]
        out: PathBuf,
    },
    /// Count instructions, and write them to a file.
    Count {
        #[command(flatten)]
        on: On,
        /// The file; what it has about times stays.
        #[arg(long)]
        out: PathBuf,
    },
    /// Send ticks to a trader, whose fast path callgrind counts.
    Run(On),
    /// Draw the times of a file.
    Draw {
        /// The file.
        results: PathBuf,
        /// The picture, as SVG.
        picture: PathBuf,
    },
}

fn main() -> Result<()> {
    match Figures::parse().command {
        Command::Measure { on, out } => {
            let times = on_devices(&on, measure::Measure)?;
            times.iter().for_each(|times| println!("{times}"));
            Results::update(&out, |results| results.times = times)
        }
        Command::Count { on, out } => {
            let instructions = count::count(&on)?;
            println!("{instructions:.0} instructions in user space from a tick to its order");
            Results::update(&out, |results| results.instructions = Some(instructions))
        }
        Command::Run(on) => on_devices(&on, count::Run),
        Command::Draw { results, picture } => {
            let svg = draw::draw(&Results::read(&results)?)?;
            std::fs::write(&picture, svg).with_context(|| picture.display().to_string())
        }
    }
}
