//! The command line: cmtime's own flags where they apply.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// How long each phase of many connections takes: rdma-core's cmtime on cmid.
#[derive(Clone, Debug, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Args {
    /// Be the client of the server at this address; without it, be the server. On the simulator both sides are here.
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) server: Option<IpAddr>,
    /// The address to bind to: the server's, or the client's own.
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// How many connections the client makes; the server ends when it has had as many.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connections: u64,
    /// The server's port.
    #[arg(short, long, default_value_t = 7471)]
    pub(crate) port: u16,
    /// How often an address or a route is tried again; also what the device is told for a lost packet, up to 7.
    #[arg(short, long, default_value_t = 2)]
    pub(crate) retries: u8,
    /// The limit in milliseconds for an address and for a route.
    #[arg(short, long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), value_name = "MS")]
    pub(crate) timeout: u64,
    /// Make no QPs, but give QP numbers from this one on (that of the server's side lie 4,194,304 higher).
    #[arg(short = 'q', long, value_name = "N")]
    pub(crate) base_qpn: Option<u32>,
    /// How many connections are under way at once, each on its own. Without it all of them are, and phase follows phase as
    /// in cmtime: none begins before every connection has had the one before.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "K")]
    pub(crate) in_flight: Option<u64>,
    /// The limit in seconds for each connect, accept and disconnect.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), value_name = "S")]
    pub(crate) patience: u64,
    /// The limit in seconds for all of it: what has not ended by then is reported as such.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..), value_name = "S")]
    pub(crate) deadline: u64,
    /// Which of cmid's drivers carries it.
    #[arg(long, value_enum, default_value_t = DriverName::Epoll)]
    pub(crate) driver: DriverName,
    /// Which device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// How many simulated hosts the clients run on, with the driver `virtual`; a host has ports for 28,232 connections
    /// at once. By default one for each 25,000. They share what is under way at once, so there are no more hosts than that;
    /// phase follows phase on each host by itself.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100), value_name = "H")]
    pub(crate) hosts: Option<u64>,
    /// After how many connections the simulated server goes, if not after all of them.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) serves: Option<u64>,
    /// Meet the other side over TCP, at the same address and port, and keep in step with it as cmtime of rdma-core 52 to 58
    /// does: one connection to warm up, then all of them with QPs, then all of them without, numbered from --base-qpn or
    /// 1000 on. What came out of the last two rounds is reported. Only with --device verbs.
    #[arg(long, conflicts_with_all = ["in_flight", "serves", "hosts"])]
    pub(crate) oob: bool,
    /// Say what came out as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            connections: self.connections,
            in_flight: self.in_flight.map(|most| most.min(self.connections)),
            bind: self.bind,
            retries: self.retries,
            timeout: Duration::from_millis(self.timeout),
            patience: Duration::from_secs(self.patience),
            deadline: Duration::from_secs(self.deadline),
            base_qpn: self.base_qpn,
            in_step: false,
        }
    }
}

/// What a side is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: u64,
    /// `None`: all at once, phase after phase.
    pub(crate) in_flight: Option<u64>,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) retries: u8,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) deadline: Duration,
    /// `None`: with QPs.
    pub(crate) base_qpn: Option<u32>,
    /// Whether a side stops at each [`Point`](crate::side::Point) until the other is there.
    pub(crate) in_step: bool,
}

/// Which side, and where the server is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Server(SocketAddr),
    Client(SocketAddr),
}

/// One of cmid's drivers, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverName {
    /// In a mio `Poll`.
    Mio,
    /// On an epoll instance.
    Epoll,
    /// No driver: cores on the simulator, whose time jumps to what is due next. The times are the fabric's, and none goes by
    /// between two messages.
    Virtual,
}

impl DriverName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DriverName::Mio => "mio",
            DriverName::Epoll => "epoll",
            DriverName::Virtual => "virtual",
        }
    }
}

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// librdmacm and libibverbs.
    Verbs,
}
