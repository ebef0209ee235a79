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
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use cmid_proto::datapath::DataPath;

use crate::server::{LIMIT, SIZE};

/// The port of the server.
const PORT: u16 = 7480;

/// A server on a wildcard address selects the PD and the MR of each connection by its device.
#[derive(Debug, Parser)]
struct Args {
    /// The simulated fabric, where a host has one device, `sim`; or the RDMA devices of this machine
    #[arg(long, default_value = "sim", value_parser = ["sim", "verbs"])]
    device: String,
    /// The addresses that clients connect to, one after the other, each with the name of its device
    #[arg(value_name = "ADDRESS=DEVICE", required = true, value_parser = target)]
    targets: Vec<Target>,
}

/// An address, and the name of its device.
type Target = (IpAddr, String);

fn target(text: &str) -> Result<Target> {
    let (ip, name) = text.split_once('=').context("there is no `=`")?;
    ensure!((1..=SIZE).contains(&name.len()), "the name of a device has 1 to {SIZE} bytes");
    Ok((ip.parse()?, name.to_owned()))
}

fn main() -> Result<()> {
    let Args { device, targets } = Args::parse();
    if device == "sim" {
        // One host with the addresses of all targets.
        let addresses: Vec<IpAddr> = targets.iter().map(|(ip, _)| *ip).collect();
        let config = cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() };
        let host = cmid_sim::Fabric::new(config).host(&addresses);
        return run(|| Ok(host.device()), |_| "sim".to_owned(), &targets);
    }
    #[cfg(feature = "verbs")]
    return run(|| Ok(cmid_verbs::Verbs::open()?), |nic| nic.name().to_owned(), &targets);
    #[cfg(not(feature = "verbs"))]
    anyhow::bail!("built without the feature `verbs`: there is only --device sim");
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
        for (ip, expected) in targets {
            let read =
                client::run(device()?, SocketAddr::from((*ip, PORT))).with_context(|| format!("the client of {ip}"))?;
            println!("client: {ip} is served by {read}");
            ensure!(read == *expected, "{ip} is on {expected}");
        }
    }
    server.join().map_err(|_| anyhow!("the server panicked"))?
}
