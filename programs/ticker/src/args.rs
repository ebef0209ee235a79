//! The command line.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Market data by multicast and order entry, by busy polling.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Ticker {
    #[command(subcommand)]
    pub(crate) program: Program,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    /// Sends ticks to a multicast group, and replays ticks that receivers miss.
    Feed(FeedArgs),
    /// Receives ticks and sends orders.
    Trader(TraderArgs),
    /// Accepts orders.
    Exchange(ExchangeArgs),
    /// Runs a feed, two traders and an exchange in one process.
    Demo(DemoArgs),
}

/// The multicast group of the demo and of the defaults.
const GROUP: &str = "239.1.1.1";

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FeedArgs {
    /// The address and port for replays. The feed sends from this address
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// The multicast group
    #[arg(long, default_value = GROUP)]
    pub(crate) group: IpAddr,
    /// Ticks per second
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: u32,
    /// Seconds until it ends; 0: never
    #[arg(long, default_value_t = 0)]
    pub(crate) seconds: u64,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TraderArgs {
    /// The local address to receive the group from
    #[arg(long)]
    pub(crate) local: IpAddr,
    /// The multicast group
    #[arg(long, default_value = GROUP)]
    pub(crate) group: IpAddr,
    /// The feed's address and port
    #[arg(long)]
    pub(crate) feed: SocketAddr,
    /// The exchange's address and port
    #[arg(long)]
    pub(crate) exchange: SocketAddr,
    /// The distance from the mean price at which it orders, in hundredths
    #[arg(long, default_value_t = 150)]
    pub(crate) edge: u64,
    /// Seconds until it ends; 0: never
    #[arg(long, default_value_t = 0)]
    pub(crate) seconds: u64,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ExchangeArgs {
    /// The address and port for traders
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// Seconds until it ends; 0: never
    #[arg(long, default_value_t = 0)]
    pub(crate) seconds: u64,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DemoArgs {
    /// The device
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// The address of the feed and the exchange
    #[arg(long, default_value = "10.99.0.1")]
    pub(crate) venue: IpAddr,
    /// The address of the traders
    #[arg(long, default_value = "10.99.0.2")]
    pub(crate) local: IpAddr,
    /// The multicast group
    #[arg(long, default_value = GROUP)]
    pub(crate) group: IpAddr,
    /// Ticks in each scene
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ticks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}
