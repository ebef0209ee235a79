//! The passive side: serves each connection as its private data requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_blocking::{Blocking, Canceller, Incoming, Listener, Options};
use cmid_proto::datapath::{Access, DataPath, QueuePair as _, prelude::*};
use cmid_proto::{Acks, CmEvent, Errno, Event, Limits, PortSpace, Time};

use crate::client::{Open, failure, readable};
use crate::outcome::classified;
use crate::side::{OWN, Queues, SPAN, Side};
use crate::wire::{ACCEPTED, Kind, MOVED, Message, REJECTED, Role};

/// The length of the memory that a client can access, in bytes.
pub(crate) const MEMORY: usize = 4096;
/// The most regions of a connection: a client may ask for ever.
const REGIONS: usize = 64;
/// Requests that the moved listener rejects.
pub(crate) const UNREAD: usize = 2;
/// The time between two looks at `stop`.
const TICK: Duration = Duration::from_millis(100);

/// Listens on an address and serves each connection in a thread of its own until `stop`. Calls `ready` with the address
/// once it listens. Errors of single connections go to `report`.
pub(crate) fn serve<D: DataPath>(
    open: &Open<'_, D>,
    addr: SocketAddr,
    stop: &AtomicBool,
    ready: impl FnOnce(SocketAddr),
    report: &(dyn Fn(anyhow::Error) + Sync),
) -> Result<()> {
    let mut listener = Listener::bind(open()?, addr).map_err(failure).context("listening")?;
    let local = listener.local_addr().context("the address of the listener")?;
    ready(local);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept(TICK) {
                Ok(incoming) => {
                    let serving = move || {
                        if let Err(error) = treat(open, incoming) {
                            report(error);
                        }
                    };
                    // Without a thread the request is dropped, which rejects it.
                    if let Err(error) = thread::Builder::new().spawn_scoped(scope, serving) {
                        report(anyhow::Error::new(error).context("the thread of a connection"));
                    }
                }
                Err(cmid_blocking::Error::TimedOut { .. }) => {}
                Err(error) if error.errno() == Errno::ENODEV => return Err(failure(error).context("accepting")),
                // Such as too few descriptors: the request waits for them.
                Err(error) => {
                    report(failure(error).context("accepting"));
                    thread::sleep(TICK);
                }
            }
        }
        Ok(())
    })
}

fn treat<D: DataPath>(open: &Open<'_, D>, incoming: Incoming<D>) -> Result<()> {
    let Some(role) = Role::from_private_data(incoming.private_data()) else {
        return incoming.reject(b"not a client of this cmid-check").map_err(failure);
    };
    if role == Role::Reject {
        return incoming.reject(REJECTED).map_err(failure);
    }
    let local = incoming.local_addr().context("the local address")?;
    let options = Options { private_data: ACCEPTED, timeout: SPAN, ..Options::default() };
    let attach = |device: &mut D, to: cmid_proto::datapath::Attaching<'_>| Side::attach(device, to, Queues::Plain);
    let (mut connection, mut side) = incoming.accept(&options, attach).map_err(failure).context("accepting")?;
    if role == Role::Serve {
        let mut session = Session { open, local: local.ip(), regions: Vec::new(), windows: Vec::new() };
        let mut look = || match connection.wait_closed(Duration::ZERO) {
            Ok(()) => bail!("the client disconnected"),
            Err(_) => Ok(()),
        };
        // The QP also fails when a behaviour makes an access that is refused; the client then disconnects.
        while let Ok(message) = side.receive_while(&mut look) {
            session.execute(&mut side, message)?;
        }
        connection.wait_closed(SPAN).map_err(failure).context("waiting for the client's disconnect")?;
    }
    connection.disconnect(SPAN).map_err(failure).context("disconnecting")
}

/// What a client has requested on one connection.
struct Session<'a, D: DataPath> {
    open: &'a Open<'a, D>,
    local: IpAddr,
    /// Windows are deallocated before their regions.
    windows: Vec<D::Mw>,
    regions: Vec<D::Mr>,
}

impl<D: DataPath> Session<'_, D> {
    fn execute(&mut self, side: &mut Side<D>, message: Message) -> Result<()> {
        let result = match message.kind {
            Kind::Echo => Ok(message.numbers),
            Kind::Register | Kind::Bind if self.regions.len() == REGIONS => Err(Errno::ENOMEM),
            Kind::Register => self.register(side, Access::from_bits_truncate(message.numbers[0] as u32)),
            Kind::Bind => self.bind(side)?,
            Kind::Unbind => self.unbind(side)?,
            Kind::Listen => self.listen(side).map(|()| [0; 3]),
            Kind::Done | Kind::Failed => bail!("the client sent {:?}", message.kind),
        };
        side.send(match result {
            Ok(numbers) => Message::new(Kind::Done, numbers),
            Err(errno) => Message::new(Kind::Failed, [errno.0.unsigned_abs().into(), 0, 0]),
        })
    }

    fn register(&mut self, side: &Side<D>, access: Access) -> Result<[u64; 3], Errno> {
        let bytes: Vec<u8> = (0..MEMORY).map(|at| at as u8).collect();
        let region = side.register_bytes(bytes, access)?;
        let (remote, first) = (region.remote(0), region.load_relaxed(0)?);
        self.regions.push(region);
        Ok([remote.addr, remote.rkey.into(), first])
    }

    /// Binds a window over new memory. The outer error is that of the connection.
    fn bind(&mut self, side: &mut Side<D>) -> Result<Result<[u64; 3], Errno>> {
        let region =
            match side.register_bytes(vec![0; MEMORY], Access::LOCAL_WRITE | Access::MW_BIND | Access::REMOTE_READ) {
                Ok(region) => region,
                Err(errno) => return Ok(Err(errno)),
            };
        let mut window = match side.pd.alloc_mw() {
            Ok(window) => window,
            Err(error) => return Ok(Err(error.errno())),
        };
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
        if let Err(error) = side.qp.post_bind(OWN, &mut window, &region, 0..MEMORY, rights) {
            return Ok(Err(error.errno()));
        }
        side.succeed("the bind of a window")?;
        let reply = [region.addr(), window.rkey().into(), region.rkey().into()];
        self.windows.push(window);
        self.regions.push(region);
        Ok(Ok(reply))
    }

    fn unbind(&mut self, side: &mut Side<D>) -> Result<Result<[u64; 3], Errno>> {
        let Some(window) = self.windows.last_mut() else { return Ok(Err(Errno::EINVAL)) };
        if let Err(error) = side.qp.post_invalidate(OWN, window) {
            return Ok(Err(error.errno()));
        }
        side.succeed("the invalidation of a window")?;
        Ok(Ok([0; 3]))
    }

    /// Listens on a port of its own and sends the port. Leaves the requests unread, moves the listener to another
    /// channel, then rejects them.
    fn listen(&mut self, side: &mut Side<D>) -> Result<(), Errno> {
        match self.move_listener(side) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.downcast_ref::<Errno>().copied().unwrap_or(Errno::EIO)),
        }
    }

    fn move_listener(&mut self, side: &mut Side<D>) -> Result<()> {
        let mut driver = Blocking::new((self.open)()?, Limits::default(), Canceller::new()?);
        let drive = driver.drive();
        let from = drive.open_channel(Acks::OnDelivery)?;
        let id = drive.create_id(Some(from), PortSpace::Tcp)?;
        drive.bind(id, SocketAddr::new(self.local, 0))?;
        drive.listen(id, UNREAD as i32)?;
        let port = drive.local_addr(id)?.port();
        side.send(Message::new(Kind::Done, [port.into(), 0, 0]))?;
        // The descriptor is polled here, not by the driver, so the requests stay in the kernel.
        let unread = drive.core().device_channel(id).context("a channel")?;
        let fd = drive.device().fd(unread).context("a descriptor")?;
        ensure!(readable(fd, SPAN)?, classified("waiting for a connection request", Errno::ETIMEDOUT));
        let to = drive.open_channel(Acks::OnDelivery)?;
        let deadline = drive.within(SPAN);
        drive.migrate(id, Some(to), deadline)?;
        let end = std::time::Instant::now() + SPAN;
        let mut rejected = 0;
        while rejected < UNREAD {
            ensure!(std::time::Instant::now() < end, classified("waiting for the requests", Errno::ETIMEDOUT));
            driver.wait(Some(TICK))?;
            while let Some(event) = driver.drive().next_event(to) {
                rejected += usize::from(reject(&mut driver, &event)?);
            }
        }
        Ok(())
    }
}

/// Rejects a connection request. False for another event.
fn reject<D: DataPath>(driver: &mut Blocking<D>, event: &Event) -> Result<bool> {
    if event.cm() != Some(CmEvent::ConnectRequest) {
        return Ok(false);
    }
    driver.drive().reject(event.id, MOVED)?;
    driver.drive().destroy(event.id, Time::NEVER)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use cmid_proto::datapath::SendWr;
    use cmid_sim::{Clock, Config, Fabric, SimDevice};

    use super::*;
    use crate::client::Client;
    use crate::side::Connected;

    /// Runs a client of a server. Errors of its connection are sent to the client.
    fn served<T>(steps: impl FnOnce(&mut Connected<SimDevice>, mpsc::Receiver<String>) -> T) -> T {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let address = IpAddr::from([10, 0, 0, 1]);
        let host = fabric.host(&[address]);
        let (open, stop) = (|| Ok(host.device()), AtomicBool::new(false));
        let ((sender, listens), (errors, reported)) = (mpsc::channel(), mpsc::channel());
        let ready = |addr| sender.send(addr).expect("the client");
        // The client does not wait for each error.
        let report = |error| _ = errors.send(format!("{error:#}"));
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&open, SocketAddr::new(address, 0), &stop, ready, &report));
            let server = listens.recv().expect("a server");
            let mut connected =
                Client { open: &open, source: None, server, verbose: false }.serve().expect("a connection");
            let result = steps(&mut connected, reported);
            // The server may have ended it.
            let _ = connected.disconnect();
            stop.store(true, Ordering::Relaxed);
            serving.join().expect("no panic").expect("no error");
            result
        })
    }

    #[test]
    fn a_client_gets_no_more_memory_than_a_connection_may_have() {
        let rights = (Access::LOCAL_WRITE | Access::REMOTE_READ).bits().into();
        let kinds = [vec![Kind::Register; 63], vec![Kind::Bind; 2], vec![Kind::Register; 2]].concat();
        let replies = served(|connected, _| {
            kinds.into_iter().map(|kind| connected.side.request(kind, [rights, 0, 0])).collect::<Vec<_>>()
        });
        assert_eq!(replies.iter().take_while(|reply| reply.is_ok()).count(), 64);
        let refused =
            |reply: &Result<[u64; 3]>| reply.as_ref().is_err_and(|error| error.to_string().contains("ENOMEM"));
        assert!(replies[64..].iter().all(refused), "{:?}", &replies[64..]);
    }

    #[test]
    fn a_client_that_takes_no_replies_is_not_read_for_ever() {
        let reported = served(|connected, reported| {
            let mut message = connected.side.register(Message::LEN, Access::LOCAL_WRITE).expect("memory");
            message.write(0, &Message::new(Kind::Echo, [0; 3]).to_bytes()).expect("a message");
            for _ in 0..32 {
                connected.side.qp.post_send(SendWr::send(OWN, message.sge(0..Message::LEN))).expect("a send");
            }
            reported.recv_timeout(SPAN / 2)
        });
        assert!(reported.as_ref().is_ok_and(|error| error.contains("more requests")), "{reported:?}");
    }
}
