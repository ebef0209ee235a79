//! A server on a wildcard address, with clients on several RDMA devices.
//!
//! A listener on a wildcard address has no device; each connection request has one. The PD and the MR of a connection
//! must be of its device, and a registration per connection would be too slow. The server therefore registers its
//! memory once per device, at the first request on the device. Later requests use the registration of their device.
//!
//! Each client reads the registered memory, which contains the name of the device. The server and the clients are
//! threads of this program.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod client;
mod limits;
mod server;
mod stock;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Parser, ValueEnum};
use cmid_proto::datapath::DataPath;

use crate::limits::{LIMIT, SIZE};

/// The port of the server.
const PORT: u16 = 7480;

/// A server on a wildcard address selects the PD and the MR of each connection by its device.
#[derive(Debug, Parser)]
struct Args {
    /// The devices
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// The backend of connection management with `--device verbs`: the kernel's own interface (kernel), or librdmacm
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    backend: cmid_verbs::Backend,
    /// The addresses that clients connect to, one after the other, each with the name of its device
    #[arg(value_name = "ADDRESS=DEVICE", required = true)]
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceName {
    /// The simulated fabric, where a host has one device, `sim`
    Sim,
    /// The RDMA devices of this machine
    Verbs,
}

/// An address, and the name of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    ip: IpAddr,
    name: String,
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (ip, name) = text.split_once('=').context("there is no `=`")?;
        ensure!((1..=SIZE).contains(&name.len()), "the name of a device has 1 to {SIZE} bytes");
        Ok(Target { ip: ip.parse()?, name: name.to_owned() })
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
            eprintln!("wildcard: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program on one simulated host with the addresses of all targets.
fn on_sim(args: &Args) -> Result<()> {
    use cmid_sim::{Clock, Config, Fabric};
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let mut addresses: Vec<IpAddr> = vec![[10, 0, 0, 1].into()];
    addresses.extend(args.targets.iter().map(|target| target.ip));
    let host = fabric.host(&addresses);
    run(|| Ok(host.device()), |_| "sim".to_owned(), &args.targets)
}

#[cfg(feature = "verbs")]
fn on_verbs(args: &Args) -> Result<()> {
    let open = || cmid_verbs::Verbs::open_with(args.backend).context("opening RDMA connection management");
    run(open, |nic| nic.name().to_owned(), &args.targets)
}

#[cfg(not(feature = "verbs"))]
fn on_verbs(_args: &Args) -> Result<()> {
    anyhow::bail!("this program was built without the feature `verbs`: there is only --device sim")
}

/// Starts the server, then runs one client per target, one after the other.
fn run<D: DataPath + 'static>(
    device: impl Fn() -> Result<D>,
    name: fn(&D::Nic) -> String,
    targets: &[Target],
) -> Result<()> {
    let (ready, is_ready) = mpsc::channel();
    let (wildcard, count, at_server) = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), targets.len(), device()?);
    let server = thread::spawn(move || server::run(at_server, wildcard, count, name, &ready));
    // Without a listener, the server has failed, and the program reports the server's error.
    if is_ready.recv_timeout(LIMIT).is_ok() {
        for target in targets {
            let read = client::run(device()?, SocketAddr::from((target.ip, PORT)))
                .with_context(|| format!("the client of {}", target.ip))?;
            println!("client: {} is served by {read}", target.ip);
            ensure!(read == target.name, "{} is on {}", target.ip, target.name);
        }
    }
    server.join().map_err(|_| anyhow!("the server panicked"))?
}
