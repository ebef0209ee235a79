//! Behaviours of connection management.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_blocking::Error;
use cmid_proto::datapath::DataPath;
use cmid_proto::{Acks, CmEvent, Errno, RequestKind};

use crate::client::{Client, failure, readable};
use crate::outcome::Behaviour;
use crate::server::UNREAD;
use crate::side::{Queues, SPAN};
use crate::wire::{ACCEPTED, Kind, MOVED, REJECTED, Role};

/// A port without a listener (discard).
const NO_LISTENER: u16 = 9;

/// Runs all of them.
pub(crate) fn check<D: DataPath>(client: &Client<'_, D>) -> Vec<Behaviour> {
    let run =
        |name, behaviour: fn(&Client<'_, D>) -> Result<()>| Behaviour::run(name, client.verbose, || behaviour(client));
    vec![
        run("connect, accept with private data, disconnect", connect),
        run("reject with private data", reject),
        run("connect to a port without a listener", no_listener),
        run("the peer disconnects", peer_disconnects),
        run("an id moves with an unread event", unread_event),
        run("a listener moves with unread connection requests", unread_requests),
    ]
}

fn connect<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let connected = client.serve()?;
    let data = connected.connection.private_data();
    ensure!(data.starts_with(ACCEPTED), "the private data of the accept is {:?}", String::from_utf8_lossy(data));
    connected.disconnect()
}

fn reject<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    rejected_with(client.try_connect(client.server, Role::Reject, Queues::Plain)?.map(drop), REJECTED)
}

fn rejected_with(result: Result<(), Error>, private_data: &[u8]) -> Result<()> {
    match result {
        Ok(()) => bail!("the connection was accepted"),
        Err(error) => match error.reject_data() {
            Some(data) if data.starts_with(private_data) => Ok(()),
            Some(data) => bail!("the private data is {:?}", String::from_utf8_lossy(data)),
            None => Err(failure(error)),
        },
    }
}

fn no_listener<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let server = SocketAddr::new(client.server.ip(), NO_LISTENER);
    match client.try_connect(server, Role::Serve, Queues::Plain)? {
        Ok(_) => bail!("the connection was accepted"),
        Err(Error::Ended { error, .. }) => match error.event.cm() {
            Some(CmEvent::Rejected | CmEvent::Unreachable | CmEvent::ConnectError) => Ok(()),
            _ => bail!("it ended with {}", error.event),
        },
        // On iWARP the call itself can fail.
        Err(Error::Core(error)) if error.errno() == Errno::ECONNREFUSED => Ok(()),
        Err(error) => Err(failure(error)),
    }
}

fn peer_disconnects<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connected = client.connect(Role::Disconnect, Queues::Plain)?;
    connected.connection.wait_closed(SPAN).map_err(failure)?;
    connected.disconnect()
}

fn unread_event<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connecting = client.begin(client.server, Role::Disconnect)?;
    let (driver, id) = (&mut connecting.driver, connecting.id);
    driver.finish(id, RequestKind::Connect).map_err(failure)?;
    let drive = driver.drive();
    let channel = drive.core().device_channel(id).context("a channel")?;
    let fd = drive.device().fd(channel).context("a descriptor")?;
    ensure!(readable(fd, SPAN)?, "DISCONNECTED did not arrive");
    let to = drive.open_channel(Acks::OnDelivery).context("opening a channel")?;
    let deadline = drive.within(SPAN);
    drive.migrate(id, Some(to), deadline).context("migrating")?;
    let end = std::time::Instant::now() + SPAN;
    loop {
        match driver.drive().next_event(to).map(|event| event.cm()) {
            Some(Some(CmEvent::Disconnected)) => return Ok(()),
            Some(_) => {}
            None => {
                ensure!(std::time::Instant::now() < end, "DISCONNECTED did not move");
                driver.wait(Some(SPAN)).context("waiting")?;
            }
        }
    }
}

fn unread_requests<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut control = client.serve()?;
    let [port, ..] = control.side.request(Kind::Listen, [0; 3])?;
    let server = SocketAddr::new(client.server.ip(), u16::try_from(port)?);
    let begun: Vec<_> = (0..UNREAD).map(|_| client.begin(server, Role::Serve)).collect::<Result<_>>()?;
    let moved = control.side.receive()?.done();
    moved.context("the server's listener")?;
    for mut connecting in begun {
        rejected_with(connecting.driver.finish(connecting.id, RequestKind::Connect), MOVED)?;
    }
    control.disconnect()
}
