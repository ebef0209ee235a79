//! Market data by multicast and order entry over RDMA connections, by busy polling.
//!
//! `ticker demo` runs everything on the simulator. `ticker feed`, `ticker exchange` and `ticker trader` are the three
//! programs on real devices.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod args;
mod demo;
#[cfg(feature = "verbs")]
mod programs;

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
            eprintln!("ticker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &DemoArgs) -> Result<()> {
    match args.device {
        DeviceName::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            let [venue, traders] = [args.venue, args.local].map(|address| fabric.host(&[address]));
            demo::run(args, || Ok(venue.device()), || Ok(traders.device()), |loss| fabric.set_loss(loss))
        }
        #[cfg(feature = "verbs")]
        DeviceName::Verbs => demo::run(args, open, open, |_| ()),
        #[cfg(not(feature = "verbs"))]
        DeviceName::Verbs => without_verbs(),
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

#[cfg(feature = "verbs")]
fn on_hardware(program: &Program) -> Result<()> {
    match program {
        Program::Feed(args) => programs::feed(open()?, args),
        Program::Trader(args) => programs::trader(open()?, args),
        Program::Exchange(args) => programs::exchange(open()?, args),
        Program::Demo(_) => Ok(()),
    }
}

#[cfg(not(feature = "verbs"))]
fn on_hardware(_: &Program) -> Result<()> {
    without_verbs()
}

#[cfg(not(feature = "verbs"))]
fn without_verbs() -> Result<()> {
    anyhow::bail!("built without real devices: build with `--features verbs`, or run `ticker demo` on the simulator")
}
