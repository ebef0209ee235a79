//! A reactor that accepts the requests of its queue, into which the acceptor puts them, and the clients
//! ([`on_acceptor`](crate::on_acceptor)).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use cmid_blocking::Connection;
use cmid_epoll::proto::Acks;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{ReleasedIncoming, Session};
use cmid_epoll::{Config, Epoll, Waker};

use crate::program::{attach, options};

/// Accepts the requests of its queue until the queue is closed and the connections have ended.
pub(crate) fn react<D: DataPath>(
    device: D,
    requests: &Receiver<ReleasedIncoming<D::Handle>>,
    started: &Sender<Waker>,
) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let on = driver.drive().open_channel(Acks::OnDelivery)?;
    started.send(driver.waker()?).map_err(io::Error::other)?;
    let mut sessions = HashMap::new();
    loop {
        match requests.try_recv() {
            Ok(released) => {
                let adopted = released.adopt(driver.drive(), Some(on)).map_err(io::Error::from);
                match adopted.and_then(|it| Ok(Session::accept(driver.drive(), it, &options(), attach::<D>)?)) {
                    Ok(session) => drop(sessions.insert(session.id(), session)),
                    // A peer that has gone is not the end of the reactor.
                    Err(error) => eprintln!("a request is not accepted: {error}"),
                }
                continue;
            }
            Err(TryRecvError::Disconnected) if sessions.is_empty() => return Ok(()),
            Err(TryRecvError::Disconnected | TryRecvError::Empty) => driver.wait(None)?,
        }
        while let Some(event) = driver.drive().next_event(on) {
            let Some(session) = sessions.get_mut(&event.id) else { continue };
            if let Err(error) = session.handle(driver.drive(), event, attach::<D>) {
                eprintln!("a connection has failed: {error}");
                session.cancel(driver.drive())?;
            }
        }
        for session in sessions.values_mut() {
            while let Some(_flushed) = session.next_completion(driver.drive())? {}
        }
        sessions.retain(|_, session| !session.is_over());
    }
}

/// The number of connections of [`clients`].
pub(crate) const CLIENTS: usize = 8;

/// Connects and disconnects, one connection after the other.
pub(crate) fn clients<D: DataPath>(device: &D, address: SocketAddr) -> io::Result<()> {
    let options = options();
    for _ in 0..CLIENTS {
        let (mut connection, _attached) = Connection::connect(device.sibling(), address, &options, attach::<D>)?;
        connection.disconnect(options.timeout)?;
    }
    Ok(())
}
