//! Both sides on the simulator in real time, each on the driver, in a thread of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, bail};
use cmid_harness::DriverName;
use cmid_sim::{Clock, Config, Fabric};

use crate::args::{Plan, Role};
use crate::on_driver::run_on;
use crate::server::Served;
use crate::side::Outcome;
use crate::tally::Tally;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Returns the client's results; and the server's, unless a connection has failed, for which it would wait.
pub(crate) fn run(driver: DriverName, port: u16, plan: Plan) -> Result<(Box<Tally>, Option<Served>)> {
    let max_backlog = u32::try_from(plan.connections).context("so many at once")?.max(Config::default().max_backlog);
    let fabric = Fabric::new(Config { clock: Clock::Real, max_backlog, ..Config::default() });
    let (server_host, client_host) = (fabric.host(&[SERVER]), fabric.host(&[CLIENT]));
    let (server_device, client_device) = (server_host.device(), client_host.device());
    let address = SocketAddr::new(SERVER, port);
    let (listens, listening) = channel();
    let server = thread::Builder::new().name("server".into()).spawn(move || {
        let meet = &mut |_| {
            // The client waits for this message.
            let _ = listens.send(());
            Ok(())
        };
        run_on(driver, server_device, Role::Server(address), plan, meet)
    })?;
    let client = match listening.recv() {
        Ok(()) => run_on(driver, client_device, Role::Client(address), plan, &mut |_| Ok(())).context("client")?,
        // Its error says why.
        Err(_) => return joined(server).and_then(|_| bail!("the server does not listen")),
    };
    let Outcome::Client(tally) = client else { bail!("a client is no server") };
    if tally.finished() < plan.connections {
        return Ok((tally, None));
    }
    match joined(server)? {
        Outcome::Server(served) => Ok((tally, Some(served))),
        Outcome::Client(_) => bail!("a server is no client"),
    }
}

fn joined(server: JoinHandle<Result<Outcome>>) -> Result<Outcome> {
    server.join().map_err(|_| anyhow!("the server panicked"))?.context("server")
}
