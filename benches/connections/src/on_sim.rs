//! Both sides on the simulator in real time, each on the driver, in a thread of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use cmid_harness::DriverName;
use cmid_sim::{Clock, Config, Fabric};

use crate::args::{Plan, Role};
use crate::on_driver::run_on;
use crate::server::Served;
use crate::side::{Alone, Outcome};
use crate::tally::Tally;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Returns the client's results, and the server's.
pub(crate) fn run(driver: DriverName, port: u16, plan: Plan, serves: u64) -> Result<(Box<Tally>, Served)> {
    let max_backlog = u32::try_from(plan.connections).context("so many at once")?.max(Config::default().max_backlog);
    let fabric = Fabric::new(Config { clock: Clock::Real, max_backlog, ..Config::default() });
    let (server_host, client_host) = (fabric.host(&[SERVER]), fabric.host(&[CLIENT]));
    let (server_device, client_device) = (server_host.device(), client_host.device());
    let address = SocketAddr::new(SERVER, port);
    let server_plan = Plan { connections: serves, ..plan };
    let (listens, listening) = channel();
    let alone = Arc::new(Alone::default());
    let servers = Arc::clone(&alone);
    let server = thread::Builder::new().name("server".into()).spawn(move || {
        let meet = &mut |_| {
            // The client waits for this message.
            let _ = listens.send(());
            Ok(())
        };
        run_on(driver, server_device, Role::Server(address), server_plan, &servers, meet)
    })?;
    // If the server cannot listen, its error is returned below.
    let client = listening.recv().map(|()| {
        let role = Role::Client(address);
        run_on(driver, client_device, role, plan, &Alone::default(), &mut |_| Ok(())).context("client")
    });
    // The client has ended in any case: the server need not wait for more.
    alone.set();
    let served = server.join().map_err(|_| anyhow!("the server panicked"))?.context("server")?;
    let client = client.context("the server does not listen")??;
    match (client, served) {
        (Outcome::Client(tally), Outcome::Server(served)) => Ok((tally, served)),
        (Outcome::Server(_), _) | (_, Outcome::Client(_)) => bail!("a side is the other one"),
    }
}
