//! Fencing, as in consensus systems over RDMA: a replica revokes the write access of a deposed leader.
//!
//! A replica has a region of memory, a *lane* of its log, for each candidate for leadership. The leader replicates by
//! RDMA write, without the replica's processor. A deposed leader may continue to write until it receives a message. The
//! replica therefore re-registers the leader's lane without remote write. Afterwards the device refuses the writes of
//! that candidate only. If the device or the library fails to re-register, the candidate is *not fenced*.
//!
//! The replica and both candidates are threads of this program. On a real device their writes pass through the
//! device.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod candidate;
mod lane_addr;
mod port;
mod replica;
mod scene;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use cmid_proto::memory;

/// A replica fences a deposed leader by re-registering its memory without remote write.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The device. On the simulator, `--way` also selects its capabilities.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// The backend of connection management with `--device verbs`: the kernel's own interface (kernel), which costs
    /// less and never blocks, or librdmacm.
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    backend: cmid_verbs::Backend,
    /// How the replica must re-register. If it re-registers in the other way, the program fails.
    #[arg(long, value_enum, default_value_t = Way::InPlace)]
    way: Way,
    /// The address of the replica; the default is one of the simulator, or of the VM's soft-RoCE device.
    #[arg(short, long)]
    address: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// By ibv_rereg_mr.
    InPlace,
    /// By a new registration and the deregistration of the old one, for providers without ibv_rereg_mr.
    Anew,
}

impl From<Way> for memory::Way {
    fn from(way: Way) -> Self {
        match way {
            Way::InPlace => memory::Way::InPlace,
            Way::Anew => memory::Way::Anew,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.device {
        DeviceName::Sim => on_sim(&args),
        DeviceName::Verbs => on_verbs(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencing: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program on one simulated host. The VM is also one host.
fn on_sim(args: &Args) -> Result<()> {
    use cmid_sim::{Clock, Config, Fabric, Rereg};
    let rereg = match args.way {
        Way::InPlace => Rereg::PdAccess,
        Way::Anew => Rereg::None,
    };
    let fabric = Fabric::new(Config { clock: Clock::Real, rereg, ..Config::default() });
    let address = args.address.unwrap_or_else(|| SocketAddr::from(([10, 0, 0, 2], 7475)));
    let host = fabric.host(&[[10, 0, 0, 1].into(), address.ip()]);
    scene::run(|| Ok(host.device()), address, args.way.into())
}

#[cfg(feature = "verbs")]
fn on_verbs(args: &Args) -> Result<()> {
    use anyhow::Context as _;
    let address = args.address.unwrap_or_else(|| SocketAddr::from(([10, 99, 0, 2], 7475)));
    scene::run(
        || cmid_verbs::Verbs::open_with(args.backend).context("opening the RDMA device"),
        address,
        args.way.into(),
    )
}

#[cfg(not(feature = "verbs"))]
fn on_verbs(_args: &Args) -> Result<()> {
    anyhow::bail!("this program was built without the feature `verbs`: there is only --device sim")
}
