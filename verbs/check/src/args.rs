//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Checks and measures RDMA devices.
///
/// Without options it checks each device of this machine that has an address, with the server in this program. It uses
/// only ids, QPs and memory that it creates.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Serve clients on other machines, on the given address, until the program is stopped
    #[arg(long, requires = "address", conflicts_with = "peer")]
    pub(crate) serve: bool,
    /// The server: the address of a machine that runs `cmid-check --serve`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    /// The port of --serve and --peer
    #[arg(long, default_value_t = 7475)]
    pub(crate) port: u16,
    /// The local address; without it, one address of each device
    #[arg(long)]
    pub(crate) address: Option<IpAddr>,
    /// The number of pings, and of writes
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pings: u32,
    /// The number of connections
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Print each outcome at once, to standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Do not run rdma-core's programs
    #[arg(long)]
    pub(crate) no_tools: bool,
    /// The devices
    #[arg(long, value_enum, default_value_t)]
    pub(crate) device: DeviceName,
    /// What manages connections: kernel or librdmacm
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    pub(crate) backend: cmid_verbs::Backend,
}

/// The devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The devices of this machine.
    #[cfg_attr(feature = "verbs", default)]
    Verbs,
    /// The simulated fabric, to try the program.
    #[cfg_attr(not(feature = "verbs"), default)]
    Sim,
}
