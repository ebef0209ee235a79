//! Measures the example `ticker`.
//!
//! `ticker-figures measure` measures the time from a tick to its order for three traders: one that polls, one that
//! sleeps in epoll, and one over UDP and TCP. `ticker-figures count` counts the instructions with callgrind.
//! `ticker-figures draw` draws the recorded times.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod count;
mod draw;
mod measure;
mod on_rdma;
mod on_sockets;
mod results;
mod stream;

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::sim::{Clock, Config, Fabric};

use crate::results::Results;

/// Measures the example `ticker`.
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

/// Where to measure.
#[derive(Clone, Copy, Debug, Args)]
struct On {
    /// The device
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// The address of the feed and the exchange
    #[arg(long, default_value = "10.99.0.1")]
    venue: IpAddr,
    /// The address of the trader
    #[arg(long, default_value = "10.99.0.2")]
    local: IpAddr,
    /// Ticks in each round of each trader
    #[arg(long, default_value_t = 400)]
    ticks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}

impl DeviceName {
    fn name(self) -> &'static str {
        match self {
            DeviceName::Sim => "sim",
            DeviceName::Verbs => "verbs",
        }
    }
}

/// What runs on devices: those of the venue, and of the trader.
trait OnDevices {
    type Output;

    fn run<D: DataPath + 'static>(
        self,
        on: &On,
        venue: &(dyn Fn() -> Result<D> + Sync),
        local: &(dyn Fn() -> Result<D> + Sync),
    ) -> Result<Self::Output>;
}

fn on_devices<A: OnDevices>(on: &On, action: A) -> Result<A::Output> {
    match on.device {
        DeviceName::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            let [venue, local] = [on.venue, on.local].map(|address| fabric.host(&[address]));
            action.run(on, &|| Ok(venue.device()), &|| Ok(local.device()))
        }
        #[cfg(feature = "verbs")]
        DeviceName::Verbs => {
            let open = || cmid_epoll::verbs::Verbs::open().context("no RDMA device");
            action.run(on, &open, &open)
        }
        #[cfg(not(feature = "verbs"))]
        DeviceName::Verbs => anyhow::bail!("built without the feature `verbs`"),
    }
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
