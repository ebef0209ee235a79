//! The command line: cmtime's own flags where they apply.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use cmid_harness::DriverName;

/// Measures the phases of many connections: rdma-core's cmtime on cmid. A phase begins when every connection has
/// finished the previous one.
#[derive(Clone, Debug, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Args {
    /// Be the client of the server at this address; without it, be the server. On the simulator both sides run here.
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) server: Option<IpAddr>,
    /// The address to bind to: the server's, or the client's own.
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// The number of connections that the client makes; the server ends after as many.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connections: u64,
    /// The server's port.
    #[arg(short, long, default_value_t = 7471)]
    pub(crate) port: u16,
    /// How often an address or a route is retried; also the device's retry count for lost packets, up to 7.
    #[arg(short, long, default_value_t = 2)]
    pub(crate) retries: u8,
    /// The time limit in milliseconds for an address and for a route.
    #[arg(short, long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), value_name = "MS")]
    pub(crate) timeout: u64,
    /// Make no QPs, but use QP numbers from this one on (those of the server are 4,194,304 higher).
    #[arg(short = 'q', long, value_name = "N")]
    pub(crate) base_qpn: Option<u32>,
    /// The time limit in seconds for each connect, accept and disconnect.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), value_name = "S")]
    pub(crate) patience: u64,
    /// The time limit in seconds for the run: connections in progress at its end are reported as unfinished.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..), value_name = "S")]
    pub(crate) deadline: u64,
    /// The driver of cmid.
    #[arg(long, value_enum, default_value_t = DriverName::Epoll)]
    pub(crate) driver: DriverName,
    /// The device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// What manages the connections with `--device verbs`: the kernel's own interface (kernel), which costs less and
    /// never waits, or librdmacm.
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    pub(crate) backend: cmid_verbs::Backend,
    /// Synchronize with the other side over TCP, at the same address and port, like cmtime of rdma-core 52 to 58:
    /// one connection to warm up, then all of them with QPs, then all of them without, numbered from --base-qpn or
    /// 1000 on. The results of the last two rounds are reported. Only with --device verbs.
    #[arg(long)]
    pub(crate) oob: bool,
    /// Print the results as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            connections: self.connections,
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

/// The parameters of a side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: u64,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) retries: u8,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) deadline: Duration,
    /// `None`: with QPs.
    pub(crate) base_qpn: Option<u32>,
    /// Whether a side waits at each [`Point`](crate::point::Point) for the other.
    pub(crate) in_step: bool,
}

/// The role, and the server's address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Server(SocketAddr),
    Client(SocketAddr),
}

/// The device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}
