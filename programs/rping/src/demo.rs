//! The demo: a client and a server on the simulated fabric, with each step printed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, CmEvent, EventKind, PortSpace, Progress};
use cmid_sim::{Clock, Fabric, Host};
use cmid_trace::Files;

use crate::agent::PATIENCE;
use crate::args::{Args, DriverName};
use crate::log::Log;
use crate::on_driver::{Side, ping, plan};
use crate::session::Plan;

const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Two hosts on a fabric in real time.
fn hosts(server: IpAddr, client: IpAddr) -> (Host, Host) {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..cmid_sim::Config::default() });
    (fabric.host(&[server]), fabric.host(&[client]))
}

/// `rping --device sim`: both sides run in this process, because no other process can reach a simulated fabric.
pub(crate) fn ping_on_sim(args: &Args, trace: Option<Arc<Files>>) -> Result<()> {
    let count = if args.count == 0 { u64::MAX } else { args.count };
    let plan = Plan { count, ..plan(args) };
    say!("both sides run in this process, on the simulated fabric; --device verbs selects the RDMA devices");
    both(args.driver, trace, args.port, [plan; 2], [Log::SILENT; 2])
}

fn both(
    driver: DriverName,
    trace: Option<Arc<Files>>,
    port: u16,
    [server, client]: [Plan; 2],
    logs: [Log; 2],
) -> Result<()> {
    let (server_host, client_host) = hosts(SERVER, CLIENT);
    let address = SocketAddr::new(SERVER, port);
    let ([server_log, client_log], (listens, listening)) = (logs, channel());
    let (server_device, client_device) = (server_host.device(), client_host.device());
    let side = Side { address, plan: Plan { server: true, ..server }, log: server_log, listens };
    let server_trace = trace.clone();
    let server =
        thread::Builder::new().name("server".into()).spawn(move || ping(driver, server_trace, server_device, side))?;
    // The listener must exist before the first request, because the client sends its request once. If there is no
    // listener, the server's thread returns the error.
    let client = match listening.recv() {
        Ok(()) => {
            let plan = Plan { server: false, ..client };
            ping(driver, trace, client_device, Side { address, plan, log: client_log, listens: channel().0 })
        }
        Err(_) => Ok(()),
    };
    if client.is_err() && !server.is_finished() {
        // The server may wait for its client without a limit, so its thread is not joined.
        return client.context("client");
    }
    let server = server.join().map_err(|_| anyhow!("the server panicked"))?;
    client.context("client")?;
    server.context("server")
}

pub(crate) fn run() -> Result<()> {
    say!(
        "A line tells a side, its id, what happens and the id's state after it. Each driver has a core, and a core numbers its"
    );
    say!("ids from 0: s1/id0 is the first id of core 1. The ids of core 0 have no prefix.");
    let plan = Plan { server: false, count: 3, size: 64, verbose: false, validate: true };
    for driver in DriverName::ALL {
        say!("\nrping on io-{}: 3 pings of 64 bytes, validated, over the simulated fabric", driver.name());
        both(driver, None, 7174, [plan, Plan { verbose: true, ..plan }], [Log(Some("server")), Log(Some("client"))])
            .with_context(|| format!("on io-{}", driver.name()))?;
    }
    say!("\nmigration: an id moves between two channels with an event pending and another one not acked");
    migrate()?;
    say!("\nAll of this ran on the simulator. `cargo xtask test` runs it on a real kernel, against rdma-core's rping.");
    Ok(())
}

/// ROUTE_RESOLVED is pending in the kernel when the id moves from one channel to the other.
fn migrate() -> Result<()> {
    let log = Log(Some("engine"));
    let (_server, client) = hosts(SERVER, CLIENT);
    let mut driver = Epoll::new(client.device(), Config::default())?;
    let limit = Some(PATIENCE);
    let [old, new] = [driver.drive().open_channel(Acks::Explicit)?, driver.drive().open_channel(Acks::Explicit)?];
    let id = driver.drive().create_id(Some(old), PortSpace::Tcp)?;
    let deadline = driver.drive().within(PATIENCE);
    driver.drive().resolve_addr(id, None, SocketAddr::new(SERVER, 7174), deadline)?;
    log.note(driver.drive(), id, &format!("is on {old} and resolves an address"));
    let mut first = None;
    while first.is_none() {
        driver.wait(limit)?;
        first = driver.drive().next_event(old);
    }
    let Some(first) = first else { bail!("no event") };
    log.note_event(driver.drive(), &first);
    driver.drive().resolve_route(id, deadline)?;
    thread::sleep(Duration::from_millis(20));
    log.note(driver.drive(), id, &format!("has ROUTE_RESOLVED pending on {old}"));
    let progress = driver.drive().migrate(id, Some(new), deadline)?;
    ensure!(progress == Progress::WhenAcked, "the migration did not wait for the ack that is owed");
    log.note(driver.drive(), id, &format!("migrates to {new} once the owed ack is given"));
    driver.drive().ack(first.ack_token.context("an event without an ack token")?)?;
    log.note(driver.drive(), id, "its event is acked");
    for expected in [EventKind::Migrated, EventKind::Cm(CmEvent::RouteResolved)] {
        let event = loop {
            if let Some(event) = driver.drive().next_event(new) {
                break event;
            }
            driver.wait(limit)?;
        };
        ensure!(event.kind == expected, "{} where {expected} was due", event.kind);
        log.note_event(driver.drive(), &event);
        if let Some(ack_token) = event.ack_token {
            driver.drive().ack(ack_token)?;
        }
    }
    ensure!(driver.drive().next_event(old).is_none(), "an event on the old channel");
    log.note(driver.drive(), id, &format!("is on {new}; {old} is empty"));
    driver.drive().destroy(id, deadline)?;
    log.ends(id);
    Ok(())
}
