//! Long runs: what only shows after thousands of connections, or when the ground moves.
//!
//! Each run checks its own result, prints its figures, and ends with a status that says whether it held.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod cycles;
mod dial;
mod flood;
mod listener;
#[cfg(feature = "verbs")]
mod removal;
mod usage;

use std::alloc::System;
use std::process::ExitCode;

use anyhow::Result;
use cap::Cap;
use clap::{Args, Parser, Subcommand, ValueEnum};
use cmid_harness::{DeviceName, OnEpoll, OnMio, SimEnv};

/// Counts what the Rust side has allocated.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs cmid's drivers for long and checks what is left.
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
        /// How many, after the warm-up.
        #[arg(long, default_value_t = 10_000)]
        count: u32,
        #[command(flatten)]
        on: On,
    },
    /// Moves a listener between two reactors on two threads while a peer connects.
    Listener {
        /// How often it moves.
        #[arg(long, default_value_t = 100)]
        moves: u32,
        /// How many connections the peer makes.
        #[arg(long, default_value_t = 1_000)]
        connections: u32,
        #[command(flatten)]
        on: On,
    },
    /// Connects more peers than the backlog allows to a listener whose application takes no requests.
    Flood {
        /// How many peers.
        #[arg(long, default_value_t = 500)]
        peers: u32,
        /// The backlog of the listener.
        #[arg(long, default_value_t = 8)]
        backlog: u16,
        /// Which device. The driver is io-epoll.
        #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
        device: DeviceName,
    },
    /// The peer of `listener`, in a process of its own.
    Dial {
        /// Where it listens.
        address: std::net::SocketAddr,
        /// How many connections to make.
        #[arg(long, default_value_t = 1_000)]
        connections: u32,
        #[command(flatten)]
        on: On,
    },
    /// Takes the RDMA device away while ids are in every state, gives it back, and goes on.
    #[cfg(feature = "verbs")]
    Removal {
        #[command(flatten)]
        on: On,
    },
}

#[derive(Clone, Copy, Debug, Args)]
struct On {
    /// Which driver.
    #[arg(long, value_enum, default_value_t = Driver::Epoll)]
    driver: Driver,
    /// Which device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    device: DeviceName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Driver {
    Mio,
    Epoll,
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

/// Calls a function with the environment that was asked for.
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
