//! Comparisons of cmid with C on a real kernel: `cargo xtask versus`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod connection;
mod connections;
mod echo;
mod idle;
mod job;
mod mark;
mod measure;
mod messages;
mod param;
mod qps;
mod serve;
mod wire;
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
    /// Echo messages: on the data path, by `Messages` on io-epoll and on tokio, and over TCP on both
    Echo(echo::Arguments),
    /// Measure the figures
    Measure(measure::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Jobs { driver, backend, address, jobs } => {
            jobs.into_iter().try_for_each(|job| job.run(address, driver, backend))
        }
        Command::Echo(arguments) => echo::run(arguments),
        Command::Measure(arguments) => measure::run(&arguments),
    }
}
