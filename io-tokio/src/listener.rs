//! The passive side.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use cmid_io_common::ListenOptions;
use cmid_proto::datapath::{Attaching, DataPath};
use cmid_proto::handshake;
use cmid_proto::handshake::{BoxError, Options, Session};
use cmid_proto::{CmEvent, Drive, Errno, Event, IdKey, Limits, Observer, Pollable, PortSpace, ReceivedParam, State};
use tokio::task::consume_budget;

use crate::connection::Connection;
use crate::driver::{Channels, Tokio};
use crate::port::Port;

/// Limit of requests that a listener has read from the kernel and the application has not taken.
const WAITING: u32 = 1024;

/// Accepts connection requests on an address. Dropping it rejects the requests that are not taken.
///
/// A task for each client:
///
/// ```
/// use cmid_tokio::proto::datapath::{Attaching, CreateError, DataPath};
/// use cmid_tokio::{Connection, Listener, Options};
/// use std::{io::ErrorKind, time::Duration};
///
/// fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<(D::Cq, D::Qp), CreateError> {
///     let made = device.qp(to).attach()?;
///     Ok((made.cq, made.qp))
/// }
///
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let mut listener = Listener::bind(host.device(), "10.0.0.2:0".parse()?)?;
/// let address = listener.local_addr()?;
/// let server = tokio::spawn(async move {
///     loop {
///         let incoming = match listener.accept().await {
///             // Such as too few descriptors: its peer is rejected, and the next one is accepted.
///             Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
///             incoming => incoming?,
///         };
///         tokio::spawn(async move {
///             let (mut connection, _qp) = incoming.accept(&Options::default(), attach).await?;
///             connection.closed().await
///         });
///     }
///     # #[allow(unreachable_code)]
///     # std::io::Result::Ok(())
/// });
///
/// for _ in 0..2 {
///     let (mut connection, _qp) = Connection::connect(host.device(), address, &Options::default(), attach).await?;
///     connection.disconnect(Duration::from_secs(5)).await?; // the server's task confirms it
/// }
/// server.abort(); // drops the listener
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener<D: Pollable, O: Observer = ()> {
    port: Port<D, O>,
}

impl<D: Pollable> Listener<D> {
    /// Binds to an address and listens. Port 0 selects a free port, see [`local_addr`](Listener::local_addr). Needs no
    /// runtime.
    ///
    /// # Errors
    /// The errno of the device, such as `EADDRINUSE`, `EADDRNOTAVAIL` or `ENODEV`.
    pub fn bind(device: D, addr: SocketAddr) -> io::Result<Self> {
        Listener::bind_with(device, addr, &ListenOptions::default())
    }

    /// As [`bind`](Listener::bind), with options.
    ///
    /// # Errors
    /// As [`bind`](Listener::bind).
    pub fn bind_with(device: D, addr: SocketAddr, options: &ListenOptions<'_>) -> io::Result<Self> {
        Listener::observed(device, (), addr, options)
    }
}

impl<D: Pollable, O: Observer> Listener<D, O> {
    /// As [`bind_with`](Listener::bind_with), with an observer of each step. Each connection has its
    /// [sibling](Observer::sibling).
    ///
    /// # Errors
    /// As [`bind`](Listener::bind).
    pub fn observed(device: D, observer: O, addr: SocketAddr, options: &ListenOptions<'_>) -> io::Result<Self> {
        // One channel for the listener, and one for a request that moves to its own drive.
        let limits = Limits { ids: WAITING, channels: 2, events: WAITING, groups: 0, ..Limits::SINGLE };
        let mut driver = Tokio::observed(device, limits, observer);
        let drive = driver.drive();
        let id = drive.create_id(None, PortSpace::Tcp)?;
        options.settings.iter().try_for_each(|&option| drive.set_option(id, option))?;
        drive.bind(id, addr)?;
        drive.listen(id, options.backlog)?;
        Ok(Listener { port: Port::of(driver, id) })
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.driver.drive.local_addr(self.port.id)?)
    }

    /// Returns the id and its drive, for requests that this type does not have. Do not migrate the id.
    pub fn parts(&mut self) -> (IdKey, &mut Drive<D, Channels, O>) {
        (self.port.id, &mut self.port.driver.drive)
    }

    /// As [`Connection::leave_runtime`].
    pub fn leave_runtime(&mut self) {
        self.port.driver.leave_runtime();
    }

    /// Waits for the next connection request.
    ///
    /// # Errors
    /// `ConnectionAborted` is about one request, and the listener goes on: it cannot move to an event channel of its own, for
    /// lack of descriptors (`EMFILE`), so its peer is rejected. Any other error ends a loop of accepts: `ENODEV` if the
    /// device is removed; a listener on a wildcard address has no device, and does not end.
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no request.
    pub async fn accept(&mut self) -> io::Result<Incoming<D, O>> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    pub(crate) fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Incoming<D, O>>> {
        loop {
            // Other tasks run, if there is always a request.
            ready!(pin!(consume_budget()).poll(context));
            while let Some(event) = self.port.next_event() {
                match event.cm() {
                    Some(CmEvent::ConnectRequest) => return Poll::Ready(self.hand_over(event).map_err(aborted)),
                    // The next call finds the state.
                    Some(CmEvent::DeviceRemoval) => return Poll::Ready(Err(Errno::ENODEV.into())),
                    // A change of the link address does not affect a listener.
                    Some(_) | None => {}
                }
            }
            if self.port.state() != State::Listening {
                return Poll::Ready(Err(Errno::ENODEV.into()));
            }
            if !self.port.turn()? {
                ready!(self.port.poll_ready(context))?;
            }
        }
    }

    /// Moves a new id to its own drive, which another thread can use.
    fn hand_over(&mut self, request: Event) -> io::Result<Incoming<D, O>> {
        let from = &mut self.port.driver.drive;
        let request = handshake::Incoming::new(from, request).map_err(|_not_a_request| Errno::EINVAL)?;
        let released = request.release(from)?;
        let mut driver = Tokio::observed(from.device().sibling(), Limits::SINGLE, from.observer().sibling());
        let request = released.adopt(driver.drive(), None)?;
        Ok(Incoming { port: Port::of(driver, request.id()), request })
    }
}

fn aborted(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("a request cannot be taken in: {error}"))
}

/// A connection request that is not answered yet. Dropping it rejects the peer.
#[derive(Debug)]
pub struct Incoming<D: Pollable, O: Observer = ()> {
    port: Port<D, O>,
    request: handshake::Incoming,
}

impl<D: Pollable, O: Observer> Incoming<D, O> {
    /// Returns the peer's parameters, mirrored: its initiator depth is the local responder resources, and vice versa.
    #[must_use]
    pub fn param(&self) -> ReceivedParam {
        self.request.param()
    }

    /// Returns the peer's private data, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.request.private_data()
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.driver.drive.peer_addr(self.port.id)?)
    }

    /// Returns the local address that the peer connected to.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.driver.drive.local_addr(self.port.id)?)
    }

    /// Returns the id and its drive, for requests that this type does not have, such as reading the peer's options of
    /// enhanced connection establishment. Do not migrate the id.
    pub fn parts(&mut self) -> (IdKey, &mut Drive<D, Channels, O>) {
        (self.port.id, &mut self.port.driver.drive)
    }

    /// Rejects the request with `reason` as private data, at most 148 bytes.
    ///
    /// # Errors
    /// Refused if the reason is too long, or `EINVAL` if the peer no longer waits.
    pub fn reject(self, reason: &[u8]) -> io::Result<()> {
        let Incoming { mut port, request } = self;
        Ok(request.reject(&mut port.driver.drive, reason)?)
    }
}

impl<D: DataPath, O: Observer> Incoming<D, O> {
    /// Accepts the request and waits for the peer's confirmation. `attach` creates a CQ and the QP, as for
    /// [`Connection::connect`].
    ///
    /// # Errors
    /// `EINVAL` if the peer no longer waits; `attach` has failed; the connection was not established, or not within
    /// [`Options::timeout`] (`TimedOut`). An error releases all resources of the connection.
    ///
    /// # Cancel safety
    /// Dropping the future rejects the peer, or ends the connection: the id is destroyed, and what `attach` has returned
    /// is dropped.
    pub async fn accept<Q, E: Into<BoxError>>(
        self,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<(D::Cq, Q), E>,
    ) -> io::Result<(Connection<D, O>, Q)> {
        let Incoming { mut port, request } = self;
        let session = Session::accept(&mut port.driver.drive, request, options, attach)?;
        // The QP exists.
        Connection::open(port, session, |_, _| Err(Errno::EINVAL)).await
    }
}
