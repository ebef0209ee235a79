//! Comparisons of cmid with C on a real kernel: `cargo xtask versus`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

#[cfg(feature = "verbs")]
mod connection;
#[cfg(feature = "verbs")]
mod connections;
#[cfg(feature = "verbs")]
mod echo;
mod idle;
#[cfg(feature = "verbs")]
mod job;
#[cfg(feature = "verbs")]
mod mark;
#[cfg(feature = "verbs")]
mod measure;
#[cfg(feature = "verbs")]
mod messages;
mod param;
#[cfg(feature = "verbs")]
mod pingpong;
#[cfg(feature = "verbs")]
mod qps;
#[cfg(feature = "verbs")]
mod serve;
#[cfg(feature = "verbs")]
mod wire;
#[cfg(feature = "verbs")]
mod work;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the jobs of the C program in the same way
    #[cfg(feature = "verbs")]
    Jobs {
        #[arg(long, value_enum, default_value = "epoll")]
        driver: job::LoopName,
        /// librdmacm or kernel; for connections, not for the data path
        #[arg(long, default_value = "librdmacm")]
        backend: cmid_verbs::Backend,
        address: std::net::SocketAddr,
        #[arg(required = true)]
        jobs: Vec<job::Job>,
    },
    /// Ping-pong messages, like `ibv_rc_pingpong`
    #[cfg(feature = "verbs")]
    Pingpong(pingpong::Arguments),
    /// Echo messages: `Messages` on io-epoll and on tokio, and TCP on both
    #[cfg(feature = "verbs")]
    Echo(echo::Arguments),
    /// Count the wake-ups of idle drivers, on the simulator
    Idle,
    /// Measure the figures
    #[cfg(feature = "verbs")]
    Measure(measure::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        #[cfg(feature = "verbs")]
        Command::Jobs { driver, backend, address, jobs } => {
            jobs.into_iter().try_for_each(|job| job.run(address, driver, backend))
        }
        #[cfg(feature = "verbs")]
        Command::Pingpong(arguments) => pingpong::run(arguments),
        #[cfg(feature = "verbs")]
        Command::Echo(arguments) => echo::run(arguments),
        Command::Idle => idle::on_simulator(),
        #[cfg(feature = "verbs")]
        Command::Measure(arguments) => measure::run(&arguments),
    }
}
