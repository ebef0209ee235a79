//! Long runs: effects that only show after thousands of connections, or when the device is removed.
//!
//! Each run checks its own result, prints its figures, and exits with a status that shows whether the checks passed.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod cycles;
mod dial;
mod flood;
mod listener;
mod on;
#[cfg(feature = "verbs")]
mod removal;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use cmid_harness::{DeviceName, OnEpoll, OnMio, SimEnv};

use crate::on::{Driver, On};

/// Runs cmid's drivers for a long time and checks that nothing is left.
#[derive(Debug, Parser)]
#[command(version)]
struct Soak {
    #[command(subcommand)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Run {
    /// Connects and disconnects many times, migrating ids meanwhile, and compares what is in use before and after.
    Cycles {
        /// The number of cycles after the warm-up.
        #[arg(long, default_value_t = 10_000)]
        count: u32,
        #[command(flatten)]
        on: On,
    },
    /// Moves a listener between two reactors on two threads while a peer connects.
    Listener {
        /// The number of moves.
        #[arg(long, default_value_t = 100)]
        moves: u32,
        /// The number of connections that the peer makes.
        #[arg(long, default_value_t = 1_000)]
        connections: u32,
        #[command(flatten)]
        on: On,
    },
    /// Connects more peers than the backlog allows to a listener that reads no requests.
    Flood {
        /// The number of peers.
        #[arg(long, default_value_t = 500)]
        peers: u32,
        /// The backlog of the listener.
        #[arg(long, default_value_t = 8)]
        backlog: u16,
        /// The device. The driver is io-epoll.
        #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
        device: DeviceName,
    },
    /// The peer of `listener`, in a process of its own.
    Dial {
        /// The address of the listener.
        address: std::net::SocketAddr,
        /// The number of connections to make.
        #[arg(long, default_value_t = 1_000)]
        connections: u32,
        #[command(flatten)]
        on: On,
    },
    /// Removes the RDMA device while ids are in every state, adds it again, and continues.
    #[cfg(feature = "verbs")]
    Removal {
        #[command(flatten)]
        on: On,
    },
}

fn main() -> ExitCode {
    match run(Soak::parse().run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Calls a function with the selected environment.
macro_rules! on {
    ($on:expr, $run:path $(, $argument:expr)*) => {
        match ($on.device, $on.driver) {
            (DeviceName::Sim, Driver::Mio) => $run(&SimEnv::<OnMio<_>>::new() $(, $argument)*),
            (DeviceName::Sim, Driver::Epoll) => $run(&SimEnv::<OnEpoll<_>>::new() $(, $argument)*),
            #[cfg(feature = "verbs")]
            (DeviceName::Verbs, Driver::Mio) => $run(&cmid_harness::VerbsEnv::<OnMio<_>>::new() $(, $argument)*),
            #[cfg(feature = "verbs")]
            (DeviceName::Verbs, Driver::Epoll) => $run(&cmid_harness::VerbsEnv::<OnEpoll<_>>::new() $(, $argument)*),
            #[cfg(not(feature = "verbs"))]
            (DeviceName::Verbs, Driver::Mio | Driver::Epoll) => {
                anyhow::bail!("this soak was built without the feature `verbs`")
            }
        }
    };
}

fn run(run: Run) -> Result<()> {
    match run {
        Run::Cycles { count, on } => on!(on, cycles::run, count, on.device == DeviceName::Verbs),
        Run::Listener { moves, connections, on } => {
            let peer = match on.device {
                // Another process has another simulator.
                DeviceName::Sim => listener::Peer::Thread,
                DeviceName::Verbs => listener::Peer::Process(on),
            };
            on!(on, listener::run, moves, connections, peer)
        }
        Run::Flood { peers, backlog, device } => {
            on!(On { driver: Driver::Epoll, device }, flood::run, peers, backlog)
        }
        Run::Dial { address, connections, on } => on!(on, dial::run, address, connections),
        #[cfg(feature = "verbs")]
        Run::Removal { on } => match on.driver {
            Driver::Mio => removal::run(&cmid_harness::VerbsEnv::<OnMio<_>>::new()),
            Driver::Epoll => removal::run(&cmid_harness::VerbsEnv::<OnEpoll<_>>::new()),
        },
    }
}
