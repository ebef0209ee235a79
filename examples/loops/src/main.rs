//! Runs cmid in each event loop, or in one: `loops calloop`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::io;
use std::net::SocketAddr;

use clap::{Parser, ValueEnum};
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::sim::{Clock, Config, Fabric};
use loops::loops;

/// Runs a server and a client in event loops.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The loop; all of them by default.
    name: Option<String>,
    /// The device.
    #[arg(long, value_enum, default_value_t = Device::Sim)]
    device: Device,
    /// The address and port that the server listens on.
    #[arg(long, default_value = "10.99.0.2:7471")]
    address: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The simulated fabric.
    Sim,
    /// A real RDMA device.
    Verbs,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    match args.device {
        Device::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            let host = fabric.host(&[args.address.ip()]);
            each(&args, || Ok(host.device()))
        }
        #[cfg(feature = "verbs")]
        Device::Verbs => each(&args, || cmid_epoll::verbs::Verbs::open().map_err(io::Error::other)),
        #[cfg(not(feature = "verbs"))]
        Device::Verbs => Err(io::Error::other("built without the feature `verbs`: there is only --device sim")),
    }
}

/// Runs the selected loops, each on its own device.
fn each<D: DataPath + 'static>(args: &Args, open: impl Fn() -> io::Result<D>) -> io::Result<()> {
    let loops = loops::<D>();
    let selected = loops.iter().filter(|(name, _)| args.name.as_deref().is_none_or(|it| it == *name));
    let mut count = 0;
    for (name, run) in selected {
        run(open()?, args.address).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        println!("{name}: done");
        count += 1;
    }
    if count == 0 {
        let names = loops.map(|(name, _)| name).join(", ");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no such loop, only {names}")));
    }
    Ok(())
}
