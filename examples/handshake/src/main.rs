//! Connections on the kernel's own interface, without librdmacm and libibverbs.
//!
//! `handshake serve` accepts connections; `handshake connect` makes them, one after the other. Each side sends private
//! data and the number of a QP. This program has no QPs; a program with its own QPs passes their numbers.
//!
//! It can be linked statically: `cargo build -p handshake --target x86_64-unknown-linux-musl`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser};
use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, PortSpace};
use cmid_verbs::KernelCm;

/// The limit of each step.
const LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of outstanding RDMA reads and atomics of soft-RoCE, in each direction.
const DEPTH: u8 = 128;

const HELLO: &[u8] = b"hello";
const WELCOME: &[u8] = b"welcome";

/// Makes connections without QPs.
#[derive(Debug, Parser)]
#[command(version)]
enum Role {
    /// Accepts connections and waits for their ends.
    Serve(Flow),
    /// Connects and disconnects.
    Connect(Flow),
}

#[derive(Clone, Copy, Debug, Args)]
struct Flow {
    /// The server's address and port
    address: SocketAddr,
    /// The number of connections
    #[arg(short = 'C', long, default_value_t = 10)]
    count: u32,
    /// The QP number of the first connection; each further connection adds one. The default depends on the process id
    #[arg(long, default_value_t = std::process::id() << 10)]
    qp_num: u32,
}

fn main() -> Result<()> {
    let role = Role::parse();
    let mut epoll = Epoll::new(KernelCm::open(DEPTH)?, Config::default())?;
    let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
    match role {
        Role::Serve(flow) => serve(&mut epoll, channel, flow),
        Role::Connect(flow) => connect(&mut epoll, channel, flow),
    }
}

/// Accepts the connections, which may overlap.
fn serve(epoll: &mut Epoll<KernelCm>, channel: ChannelKey, flow: Flow) -> Result<()> {
    let listener = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
    epoll.drive().bind(listener, flow.address)?;
    epoll.drive().listen(listener, 16)?;
    println!("listening on {}", flow.address);
    let (mut accepted, mut ended) = (0, 0);
    while ended < flow.count {
        let event = next(epoll, channel)?;
        let deadline = epoll.drive().within(LIMIT);
        match event.cm() {
            Some(CmEvent::ConnectRequest) => {
                ensure!(event.private_data.starts_with(HELLO), "private data {:?}", event.private_data);
                epoll.drive().accept(event.id, param(flow, accepted), WELCOME, deadline)?;
                accepted += 1;
            }
            Some(CmEvent::Established) => {}
            Some(CmEvent::Disconnected) => {
                epoll.drive().disconnect(event.id, deadline)?;
                epoll.drive().destroy_now(event.id)?;
                ended += 1;
            }
            _ => bail!("unexpected: {event:?}"),
        }
    }
    epoll.drive().destroy_now(listener)?;
    println!("{ended} connections accepted");
    Ok(())
}

/// Makes the connections one after the other.
fn connect(epoll: &mut Epoll<KernelCm>, channel: ChannelKey, flow: Flow) -> Result<()> {
    let start = Instant::now();
    for number in 0..flow.count {
        let id = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
        one_connection(epoll, channel, id, flow, number).with_context(|| format!("connection {number}"))?;
        epoll.drive().destroy_now(id)?;
    }
    println!("{} connections made in {} us", flow.count, start.elapsed().as_micros());
    Ok(())
}

fn one_connection(epoll: &mut Epoll<KernelCm>, channel: ChannelKey, id: IdKey, flow: Flow, number: u32) -> Result<()> {
    let deadline = epoll.drive().within(LIMIT);
    epoll.drive().resolve_addr(id, None, flow.address, deadline)?;
    let _ = expect(epoll, channel, CmEvent::AddrResolved)?;
    epoll.drive().resolve_route(id, deadline)?;
    let _ = expect(epoll, channel, CmEvent::RouteResolved)?;
    epoll.drive().connect(id, param(flow, number), HELLO, deadline)?;
    let response = expect(epoll, channel, CmEvent::ConnectResponse)?;
    ensure!(response.private_data.starts_with(WELCOME), "private data {:?}", response.private_data);
    epoll.drive().establish(id)?;
    epoll.drive().disconnect(id, deadline)?;
    let _ = expect(epoll, channel, CmEvent::Disconnected)?;
    Ok(())
}

/// The connection parameters. If two connections of a host have the same QP number, the peer's kernel rejects the
/// second as stale and ends the first. Processes on one device therefore use different numbers.
fn param(flow: Flow, number: u32) -> ConnParam {
    // A QP number has 24 bits.
    ConnParam { qp_num: flow.qp_num.wrapping_add(number) & 0xff_ffff, ..ConnParam::default() }
}

fn expect(epoll: &mut Epoll<KernelCm>, channel: ChannelKey, kind: CmEvent) -> Result<Event> {
    let event = next(epoll, channel)?;
    ensure!(event.cm() == Some(kind), "{kind} is expected: {event:?}");
    Ok(event)
}

/// Returns the next event of the channel. Fails after [`LIMIT`].
fn next(epoll: &mut Epoll<KernelCm>, channel: ChannelKey) -> Result<Event> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(event) = epoll.drive().next_event(channel) {
            return Ok(event);
        }
        epoll.wait(Some(LIMIT))?;
    }
    bail!("no event within {LIMIT:?}; a fault: {:?}", epoll.drive().next_fault())
}
