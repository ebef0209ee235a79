//! The command line: the flags of rdma-core's rping where they apply.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};

/// rdma-core's ping-pong over RDMA read and write, on cmid.
#[derive(Clone, Debug, Parser)]
#[command(disable_version_flag = true, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = ArgGroup::new("side").required(true))]
pub(crate) struct Args {
    /// The command to run instead of a ping.
    #[command(subcommand)]
    pub(crate) scene: Option<Scene>,
    /// Run the server: accept one connection and serve it until it ends.
    #[arg(short, long, group = "side")]
    pub(crate) server: bool,
    /// Run the client.
    #[arg(short, long, group = "side")]
    pub(crate) client: bool,
    /// The server's address.
    #[arg(short, long, default_value = "0.0.0.0", required_if_eq("client", "true"))]
    pub(crate) address: IpAddr,
    /// The server's port.
    #[arg(short, long, default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// The number of pings that the client sends; 0: no limit.
    #[arg(short = 'C', long, default_value_t = 0)]
    pub(crate) count: u64,
    /// The number of bytes of each ping.
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(MIN_SIZE as i64..=MAX_SIZE as i64))]
    pub(crate) size: u32,
    /// Print the data.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Compare received data with sent data.
    #[arg(short = 'V', long)]
    pub(crate) validate: bool,
    /// The driver of cmid.
    #[arg(long, value_enum, default_value_t = DriverName::Epoll)]
    pub(crate) driver: DriverName,
    /// Record the driver's steps in this file, for `cargo xtask replay`; further drivers in FILE.2 and so on.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The device. On the simulator both sides run in this process.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// The backend of connection management with `--device verbs`: the kernel's own interface (kernel), which costs
    /// less and never blocks, or librdmacm.
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    pub(crate) backend: cmid_verbs::Backend,
}

/// The size of the text of a ping.
pub(crate) const MIN_SIZE: u32 = 27;
/// The limit of rdma-core's rping.
pub(crate) const MAX_SIZE: u32 = 64 * 1024;

/// Commands other than a ping.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Scene {
    /// Show cmid on the simulator: a ping on each driver, and an id that migrates.
    Demo,
}

/// The drivers of cmid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverName {
    /// In a mio `Poll`.
    Mio,
    /// On an epoll instance, nested in a poll(2).
    Epoll,
    /// With blocking calls.
    Blocking,
}

impl DriverName {
    pub(crate) const ALL: [DriverName; 3] = [DriverName::Mio, DriverName::Epoll, DriverName::Blocking];

    pub(crate) fn name(self) -> &'static str {
        match self {
            DriverName::Mio => "mio",
            DriverName::Epoll => "epoll",
            DriverName::Blocking => "blocking",
        }
    }
}

/// The devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}
