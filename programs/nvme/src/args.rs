//! The arguments, with the names of nvme-cli.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use cmid_nvme::controller::{DISCOVERY_NQN, Settings};
use cmid_nvme::initiator::Options;
use cmid_nvme::wire::ConnectData;

/// An NVMe over RDMA initiator in user space.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tells what there is to connect to
    Discover(Target),
    /// Connects, and tells what happens to the controller
    Connect {
        #[command(flatten)]
        to: Subsystem,
        /// Disconnect after so many seconds
        #[arg(long)]
        seconds: Option<u32>,
    },
    /// Tells what Identify Controller returns
    IdCtrl(Subsystem),
    /// Tells what Identify Namespace returns
    IdNs(Namespace),
    /// Reads blocks into a file
    Read {
        #[command(flatten)]
        of: Namespace,
        #[command(flatten)]
        range: Blocks,
        /// The number of bytes, a multiple of the block; without it, to the end of the namespace
        #[arg(short = 'z', long)]
        data_size: Option<u64>,
    },
    /// Writes a file to blocks, and flushes
    Write {
        #[command(flatten)]
        of: Namespace,
        #[command(flatten)]
        range: Blocks,
    },
    /// Flushes the controller's cache of a namespace
    Flush(Namespace),
    /// Reads or writes at random places, and tells the rate and the times
    Bench {
        #[command(flatten)]
        of: Namespace,
        #[command(flatten)]
        bench: Bench,
    },
}

/// A target, and how to connect to it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The transport
    #[arg(short, long, default_value = "rdma", value_parser = ["rdma"])]
    transport: String,
    /// The address of the target
    #[arg(short = 'a', long)]
    traddr: IpAddr,
    /// The port of the target
    #[arg(short = 's', long, default_value_t = 4420)]
    trsvcid: u16,
    /// The NQN of this host; without it that of /etc/nvme/hostnqn, or one made from /etc/machine-id
    #[arg(short = 'q', long, value_parser = nqn)]
    hostnqn: Option<String>,
    /// The number of I/O queues
    #[arg(short = 'i', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128))]
    nr_io_queues: u16,
    /// The entries of each I/O queue
    #[arg(short = 'Q', long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(2..=1024))]
    queue_size: u16,
    /// The number of threads that serve the I/O queues, in turn; 0 for the loop that has the admin queue
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=128))]
    reactors: u16,
    /// The keep-alive timeout in seconds; 0 for none
    #[arg(short = 'k', long, default_value_t = 5)]
    keep_alive_tmo: u16,
    /// How many seconds to connect again after a loss; -1 for ever
    #[arg(short = 'l', long, default_value_t = 600, allow_negative_numbers = true)]
    ctrl_loss_tmo: i64,
    /// The seconds between two attempts
    #[arg(short = 'c', long, default_value_t = 10)]
    reconnect_delay: u16,
    /// The time limit of a command in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    io_timeout: u16,
    /// The most bytes of a command, in KiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(4..=1024))]
    max_transfer: u16,
}

/// A subsystem of a target.
#[derive(Debug, Clone, Args)]
pub(crate) struct Subsystem {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The NQN of the subsystem
    #[arg(short, long, value_parser = nqn)]
    nqn: String,
}

/// A namespace of a subsystem.
#[derive(Debug, Clone, Args)]
pub(crate) struct Namespace {
    #[command(flatten)]
    pub(crate) of: Subsystem,
    /// The number of the namespace
    #[arg(long, default_value_t = 1)]
    pub(crate) namespace_id: u32,
}

/// Where blocks are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Blocks {
    /// The first block
    #[arg(long, default_value_t = 0)]
    pub(crate) start_block: u64,
    /// The file; without it standard input or output
    #[arg(short, long)]
    pub(crate) data: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// Write instead of read: destroys what the namespace has
    #[arg(long)]
    pub(crate) write: bool,
    /// The bytes of each command
    #[arg(long, default_value_t = 4096)]
    pub(crate) io_size: usize,
    /// The number of commands at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) queue_depth: u16,
    /// How long at most
    #[arg(long, default_value_t = 5)]
    pub(crate) seconds: u32,
    /// How many commands at most; without it, as many as there is time for
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    pub(crate) commands: u64,
    /// Copy the data from and to memory that is not registered
    #[arg(long)]
    pub(crate) copy: bool,
    /// Print numbers only: commands a second, p50, p99 and processor time of each in microseconds
    #[arg(long)]
    pub(crate) table: bool,
}

/// A name that fits into its field: a longer one would be that of another subsystem or host.
fn nqn(text: &str) -> Result<String, String> {
    match text.len() {
        1..=ConnectData::NQN_MAX => Ok(text.to_owned()),
        len => Err(format!("an NQN has 1 to {} bytes, and not {len}", ConnectData::NQN_MAX)),
    }
}

impl Target {
    /// The options of a connection with the discovery service.
    pub(crate) fn discovery(&self) -> Options {
        let mut options = self.options(DISCOVERY_NQN);
        // nvmet takes no keep-alive of a discovery controller that is not a persistent one.
        options.settings.keep_alive = Duration::ZERO;
        options.settings.queues = 0;
        options.reactors = 0;
        options
    }

    fn options(&self, subsystem: &str) -> Options {
        let host = self.hostnqn.clone().unwrap_or_else(own_nqn);
        let settings = Settings {
            subsystem: subsystem.to_owned(),
            host_id: host_id(&host),
            host,
            queues: self.nr_io_queues,
            size: self.queue_size,
            keep_alive: Duration::from_secs(self.keep_alive_tmo.into()),
        };
        Options {
            addr: SocketAddr::new(self.traddr, self.trsvcid),
            settings,
            transfer: usize::from(self.max_transfer) << 10,
            buffers: 0,
            timeout: Duration::from_secs(self.io_timeout.into()),
            reconnect_delay: Duration::from_secs(self.reconnect_delay.into()),
            reactors: self.reactors,
            ctrl_loss: u64::try_from(self.ctrl_loss_tmo).ok().map(Duration::from_secs),
        }
    }
}

impl Subsystem {
    pub(crate) fn options(&self) -> Options {
        self.target.options(&self.nqn)
    }
}

/// The NQN of this machine: that of nvme-cli, or one of the machine's own number.
fn own_nqn() -> String {
    let read = |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    read("/etc/nvme/hostnqn").filter(|nqn| nqn.starts_with("nqn.")).unwrap_or_else(|| {
        let id = read("/etc/machine-id").filter(|id| id.len() == 32).unwrap_or_else(|| "0".repeat(32));
        let part = |range| id.get(range).unwrap_or_default();
        let [a, b, c, d, e] = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
        format!("nqn.2014-08.org.nvmexpress:uuid:{a}-{b}-{c}-{d}-{e}")
    })
}

/// The identifier of a host: the UUID of its NQN, or for another one a hash (FNV-1a).
fn host_id(nqn: &str) -> [u8; 16] {
    let digits: String = nqn.rsplit("uuid:").next().unwrap_or_default().chars().filter(|it| *it != '-').collect();
    if let (32, Ok(number)) = (digits.len(), u128::from_str_radix(&digits, 16)) {
        return number.to_be_bytes();
    }
    let offset = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let prime = 0x0100_0000_0000_0000_0000_013b_u128;
    let hash = nqn.bytes().fold(offset, |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(prime));
    hash.to_be_bytes()
}
