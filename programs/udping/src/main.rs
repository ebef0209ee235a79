//! Datagrams and multicast messages between two processes, on each driver of cmid.
//!
//! `udping serve` echoes datagrams and `udping ping` sends them; `udping receive` and `udping send` join a multicast
//! group. `udping reply` and `udping burst` are the server and the client of rdma-core's `udaddy`, and interoperate
//! with it. The group messages interoperate with rdma-core's `mckey` in both directions: receivers count messages,
//! whatever their contents.
#![forbid(unsafe_code)]

/// Prints a line. Returns the error of standard output, such as that of a full disk.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*).map_err(|error| anyhow::anyhow!("standard output: {error}"))
    }};
}

mod burst;
mod driver;
mod group;
mod peer;
mod ping;
mod port;
mod serve;

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use cmid_blocking::Blocking;
use cmid_epoll::Epoll;
use cmid_proto::datapath::DataPath;
use cmid_sim::{Clock, Config, Fabric, SimDevice};
use cmid_trace::{Files, Trace};

use crate::driver::{Driver, MioAlone};

/// Exchanges datagrams and multicast messages.
#[derive(Debug, Parser)]
#[command(version)]
struct Udping {
    #[command(subcommand)]
    role: Role,
    /// The driver.
    #[arg(long, value_enum, default_value_t = DriverName::Epoll, global = true)]
    driver: DriverName,
    /// Record the driver's steps in this file, for `cargo xtask replay`; further drivers in FILE.2 and so on.
    #[arg(long, value_name = "FILE", global = true)]
    trace: Option<PathBuf>,
    /// The backend of connection management: the kernel's own interface (kernel), which costs less and never blocks, or
    /// librdmacm.
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t, global = true)]
    backend: cmid_verbs::Backend,
}

#[derive(Clone, Debug, Subcommand)]
enum Role {
    /// Answers one lookup, and echoes each datagram.
    Serve(Flow),
    /// Looks the server up, sends datagrams and checks the echoes.
    Ping(Flow),
    /// Answers one lookup, receives all datagrams, and sends as many replies: the server of udaddy.
    Reply(Flow),
    /// Looks the server up, sends all datagrams at once, and receives as many replies: the client of udaddy.
    Burst(Flow),
    /// Joins a multicast group and counts its messages.
    Receive(Group),
    /// Joins a multicast group as a sender only, and sends messages.
    Send(Group),
    /// Runs each pair on the simulator.
    Demo,
}

#[derive(Clone, Copy, Debug, Args)]
struct Flow {
    /// The server's address and port.
    address: SocketAddr,
    /// The number of datagrams.
    #[arg(short = 'C', long, default_value_t = 100)]
    count: u32,
    /// The number of bytes of each datagram, at least 4; 0 for as many as the path permits.
    #[arg(short = 'S', long, default_value_t = 64)]
    size: usize,
}

#[derive(Clone, Copy, Debug, Args)]
struct Group {
    /// The group's address.
    group: IpAddr,
    /// The local address to join from.
    #[arg(short = 'b', long)]
    bind: IpAddr,
    /// The number of messages.
    #[arg(short = 'C', long, default_value_t = 10)]
    count: u32,
    /// The number of bytes of each message; 0 for as many as the path permits.
    #[arg(short = 'S', long, default_value_t = 100)]
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverName {
    Mio,
    Epoll,
    Blocking,
}

fn main() -> ExitCode {
    let arguments = Udping::parse();
    let driver = arguments.driver;
    let trace = arguments.trace.as_ref().map(|path| Arc::new(Files::at(path)));
    let result = match arguments.role {
        Role::Demo => demo(driver, trace.as_ref()),
        Role::Serve(_) | Role::Ping(_) | Role::Reply(_) | Role::Burst(_) | Role::Receive(_) | Role::Send(_) => {
            on_hardware(&arguments, trace.as_ref())
        }
    };
    // A lost trace is an error even if the datagrams succeed, because the user requested it.
    let traced = trace.map_or(Ok(()), |files| files.check()).context("the trace is not complete");
    let errors: Vec<_> = [result, traced].into_iter().filter_map(Result::err).collect();
    errors.iter().for_each(|error| drop(writeln!(io::stderr(), "udping: {error:#}")));
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "verbs")]
fn on_hardware(arguments: &Udping, trace: Option<&Arc<Files>>) -> Result<()> {
    let device = cmid_verbs::Verbs::open_with(arguments.backend).context("opening the RDMA device")?;
    on(arguments.driver, trace, arguments.role.clone(), device, &channel().0)
}

#[cfg(not(feature = "verbs"))]
fn on_hardware(_: &Udping, _: Option<&Arc<Files>>) -> Result<()> {
    anyhow::bail!("this udping was built without the feature `verbs`; `udping demo` runs on the simulator")
}

/// Runs a role, with a trace if requested. The waiting role sends to `ready` once it is ready.
fn on<D: DataPath>(
    driver: DriverName,
    trace: Option<&Arc<Files>>,
    role: Role,
    device: D,
    ready: &Sender<()>,
) -> Result<()> {
    let trace = trace.map(|files| Trace::new(files.clone())).transpose()?;
    match driver {
        DriverName::Mio => play(MioAlone::start(device, trace)?, role, ready),
        DriverName::Epoll => play(Epoll::start(device, trace)?, role, ready),
        DriverName::Blocking => play(Blocking::start(device, trace)?, role, ready),
    }
}

fn play<S: Driver>(driver: S, role: Role, ready: &Sender<()>) -> Result<()> {
    match role {
        Role::Serve(flow) => serve::run(driver, flow.address, flow.count, flow.size, ready),
        Role::Ping(flow) => ping::run(driver, flow.address, flow.count, flow.size),
        Role::Reply(flow) => burst::reply(driver, flow.address, flow.count, flow.size, ready),
        Role::Burst(flow) => burst::burst(driver, flow.address, flow.count, flow.size),
        Role::Receive(it) => group::receive(driver, it.group, it.bind, it.count, it.size, ready),
        Role::Send(it) => group::send(driver, it.group, it.bind, it.count, it.size),
        Role::Demo => Ok(()),
    }
}

/// Runs each pair of roles on one simulated host, each side on its own thread.
fn demo(driver: DriverName, trace: Option<&Arc<Files>>) -> Result<()> {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [client, server]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let host = fabric.host(&[client, server]);
    let flow = Flow { address: SocketAddr::new(server, 7471), count: 100, size: 64 };
    let group = Group { group: [239, 1, 1, 1].into(), bind: client, count: 10, size: 100 };
    let few = Flow { address: SocketAddr::new(server, 7472), count: 10, size: 0 };
    for pair in [
        [Role::Serve(flow), Role::Ping(flow)],
        [Role::Reply(few), Role::Burst(few)],
        [Role::Receive(group), Role::Send(Group { bind: server, ..group })],
    ] {
        let [waits, looks_up] = pair;
        let (ready, is_ready) = channel();
        let device: SimDevice = host.device();
        let files = trace.cloned();
        let waiting = std::thread::spawn(move || on(driver, files.as_ref(), waits, device, &ready));
        // If the waiting side fails before it is ready, its thread returns the error.
        let looked_up =
            if is_ready.recv().is_ok() { on(driver, trace, looks_up, host.device(), &channel().0) } else { Ok(()) };
        let waited = waiting.join().map_err(|_| anyhow::anyhow!("a side panicked")).context("the demo")?;
        looked_up?;
        waited?;
    }
    Ok(())
}
