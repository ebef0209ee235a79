//! Market data by multicast and order entry over RDMA connections, by busy polling.
//!
//! `ticker demo` runs everything on the simulator. `ticker feed`, `ticker exchange` and `ticker trader` are the three
//! programs on real devices.
#![forbid(unsafe_code)]

/// Prints a line. Returns the error of standard output, such as that of a full disk.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*).map_err(|error| anyhow::anyhow!("standard output: {error}"))
    }};
}

mod args;
mod demo;
mod programs;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cmid_epoll::sim::{Clock, Config, Fabric};

use crate::args::{DemoArgs, DeviceName, Program, Ticker};

fn main() -> ExitCode {
    let result = match Ticker::parse().program {
        Program::Demo(args) => demo(&args),
        program @ (Program::Feed(_) | Program::Trader(_) | Program::Exchange(_)) => on_hardware(&program),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ticker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &DemoArgs) -> Result<()> {
    match args.device {
        DeviceName::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            let venue = fabric.host(&[args.venue]);
            let traders = if args.local == args.venue { venue.clone() } else { fabric.host(&[args.local]) };
            demo::run(args, || Ok(venue.device()), || Ok(traders.device()), |loss| fabric.set_loss(loss))
        }
        DeviceName::Verbs => demo::run(args, open, open, |_| ()),
    }
}

#[cfg(feature = "verbs")]
fn open() -> Result<cmid_epoll::verbs::Verbs> {
    cmid_epoll::verbs::Verbs::open().map_err(|error| {
        anyhow::anyhow!(
            "no RDMA device ({error}): without hardware, `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`"
        )
    })
}

#[cfg(not(feature = "verbs"))]
fn open() -> Result<cmid_epoll::sim::SimDevice> {
    anyhow::bail!("built without real devices: build with `--features verbs`, or run `ticker demo` on the simulator")
}

fn on_hardware(program: &Program) -> Result<()> {
    match program {
        Program::Feed(args) => programs::feed(open()?, args),
        Program::Trader(args) => programs::trader(open()?, args),
        Program::Exchange(args) => programs::exchange(open()?, args),
        Program::Demo(_) => Ok(()),
    }
}
