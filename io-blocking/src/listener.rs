//! The passive side.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_io_common::ListenOptions;
use cmid_proto::datapath::Attaching;
use cmid_proto::handshake;
use cmid_proto::handshake::{BoxError, Options, Session};
use cmid_proto::{
    CmEvent, Errno, Event, EventError, IdKey, Limits, Observer, Pollable, PortSpace, ReceivedParam, Refused, Request,
    RequestKind, Time,
};

use crate::cancel::Canceller;
use crate::connection::{Connection, or_new};
use crate::driver::Blocking;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::wait::Ready;

/// Limit of requests that a listener has read from the kernel and the application has not taken.
const WAITING: u32 = 1024;

/// Accepts connection requests on an address. Dropping it rejects the requests that are not accepted.
///
/// A thread for each client, until another thread stops the listener:
///
/// ```
/// use cmid_blocking::proto::{Errno, datapath::QpParts};
/// use cmid_blocking::{Connection, Error, Listener, Options};
/// use std::{thread, time::Duration};
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut listener = Listener::bind(host.device(), "10.0.0.2:0".parse()?)?;
/// let (address, canceller) = (listener.local_addr()?, listener.canceller());
/// let server = thread::spawn(move || -> Result<usize, Error> {
///     let mut clients = Vec::new();
///     loop {
///         match listener.accept(Duration::MAX) {
///             Ok(incoming) => clients.push(thread::spawn(move || {
///                 let (mut connection, _made) = incoming.accept(&Options::default(), QpParts::attach)?;
///                 connection.wait_closed(Duration::from_secs(5))
///             })),
///             Err(Error::Cancelled { .. }) => break,
///             // The device is removed.
///             Err(error) if error.errno() == Errno::ENODEV => return Err(error),
///             // Such as too few descriptors: the request waits for them.
///             Err(_) => thread::sleep(Duration::from_millis(100)),
///         }
///     }
///     let served = clients.into_iter().filter_map(|client| client.join().ok());
///     Ok(served.filter(Result::is_ok).count())
/// });
///
/// for _ in 0..2 {
///     let (mut connection, _made) =
///         Connection::connect(host.device(), address, &Options::default(), QpParts::attach)?;
///     connection.disconnect(Duration::from_secs(5))?;
/// }
/// canceller.cancel();
/// assert_eq!(server.join().expect("the server does not panic")?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener<D: Pollable, O: Observer = ()> {
    driver: Blocking<D, O>,
    id: IdKey,
    /// A request whose accept has failed without effect, for lack of descriptors or memory. The next accept returns it.
    kept: Option<Box<Event>>,
}

impl<D: Pollable> Listener<D> {
    /// Binds to an address and listens. Port 0 selects a free port, see [`local_addr`](Listener::local_addr).
    ///
    /// # Errors
    /// [`Error::Core`] with the device's errno, such as `EADDRINUSE`, `EADDRNOTAVAIL` or `ENODEV`.
    pub fn bind(device: D, addr: SocketAddr) -> Result<Self, Error> {
        Self::bind_with(device, addr, &ListenOptions::default())
    }

    /// As [`bind`](Listener::bind), with options.
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn bind_with(device: D, addr: SocketAddr, options: &ListenOptions<'_>) -> Result<Self, Error> {
        Self::observed(device, (), addr, options)
    }
}

impl<D: Pollable, O: Observer> Listener<D, O> {
    /// As [`bind_with`](Listener::bind_with), with an observer of each step. Each connection has its
    /// [sibling](Observer::sibling).
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn observed(device: D, observer: O, addr: SocketAddr, options: &ListenOptions<'_>) -> Result<Self, Error> {
        // One channel for the listener, and one for a request that moves to its own driver.
        let limits = Limits { ids: WAITING, channels: 2, events: WAITING, groups: 0, ..Limits::SINGLE };
        let mut driver = Blocking::observed(device, limits, or_new(None)?, observer);
        let id = driver.create_endpoint(&Endpoint {
            port_space: PortSpace::Tcp,
            src: Some(addr),
            dst: None,
            settings: options.settings,
            // A bind does not wait.
            timeout: Duration::ZERO,
        })?;
        driver.drive().listen(id, options.backlog)?;
        Ok(Listener { driver, id, kept: None })
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// Returns the canceller of this listener's waits, for use from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// Replaces the canceller. After a cancel, this allows further use of the listener.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.driver.set_canceller(canceller);
    }

    /// Waits for the next connection request. A wait that was cancelled or timed out loses no request: the next call
    /// returns it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if there is none within `timeout`, which may be zero; [`Error::Cancelled`]; [`Error::Ended`]
    /// with `ENODEV` if the device is removed, and [`Error::Core`] from then on. A listener on a wildcard address has
    /// no device and gets no removal event. Any other error is about one request, and the listener goes on:
    /// [`Error::Core`] or [`Error::Canceller`] if a driver for the new id cannot be created. For lack of descriptors
    /// (`EMFILE`) or memory the next call then returns the request, as accept(2) does; otherwise its peer is rejected.
    pub fn accept(&mut self, timeout: Duration) -> Result<Incoming<D, O>, Error> {
        let end = self.driver.drive().within(timeout);
        if let Some(request) = self.kept.take() {
            return self.take_in(*request);
        }
        loop {
            let event = match self.driver.next_event(self.id) {
                Some(event) => event,
                None => {
                    let drive = self.driver.drive();
                    drive.core().would_refuse(drive.now(), self.id, &Request::GetRequest, Time::NEVER)?;
                    match self.driver.ready(self.id, None, end, "accept")? {
                        Ready::Event(event) => *event,
                        Ready::Descriptor => continue,
                    }
                }
            };
            match event.cm() {
                Some(CmEvent::ConnectRequest) => return self.take_in(event),
                Some(CmEvent::DeviceRemoval) => {
                    let error = EventError { errno: Errno::ENODEV, event }.into();
                    return Err(Error::Ended { during: "accept", error });
                }
                // A change of the link address does not affect a listener.
                Some(_) | None => {}
            }
        }
    }

    fn take_in(&mut self, request: Event) -> Result<Incoming<D, O>, Error> {
        match self.hand_over(request.id) {
            Ok((mut driver, id)) => match handshake::Incoming::new(driver.drive(), Event { id, ..request }) {
                Ok(request) => Ok(Incoming { driver, request }),
                Err(event) => Err(Refused::NoSuchId { id: event.id, request: RequestKind::Accept }.into()),
            },
            Err(error) => {
                let id = request.id;
                // Unless the id has been released: the drop of its handle has rejected the peer.
                if self.driver.view().core().state(id).is_some() {
                    if let Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM = error.errno() {
                        self.kept = Some(Box::new(request));
                    } else {
                        // It may fail each time, as that of a removed device, and no event of the listener would be
                        // read. If the destroy fails too, the id ends with the listener.
                        let _ = self.driver.drive().destroy(id, Time::NEVER);
                    }
                }
                Err(error)
            }
        }
    }

    /// Moves a new id to its own driver. Another thread can then use it.
    fn hand_over(&mut self, id: IdKey) -> Result<(Blocking<D, O>, IdKey), Error> {
        let drive = self.driver.view();
        let (device, observer) = (drive.device().sibling(), drive.observer().sibling());
        let mut driver = Blocking::observed(device, Limits::SINGLE, or_new(None)?, observer);
        self.driver.drive().migrate(id, None, Time::NEVER)?;
        let released_id = self.driver.drive().release(id)?;
        let id = driver.drive().adopt(released_id).map_err(|not| not.error)?;
        Ok((driver, id))
    }
}

/// A connection request that is not answered yet. Dropping it rejects the peer.
#[derive(Debug)]
pub struct Incoming<D: Pollable, O: Observer = ()> {
    driver: Blocking<D, O>,
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
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        self.request.peer_addr(self.driver.view())
    }

    /// Returns the local address that the peer connected to.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        self.request.local_addr(self.driver.view())
    }

    /// Returns the id and its driver, for requests that this type does not have, such as reading the peer's options of
    /// enhanced connection establishment, or rejecting them; and for [another canceller](Blocking::set_canceller) of the
    /// waits of the connection.
    pub fn parts(&mut self) -> (IdKey, &mut Blocking<D, O>) {
        (self.request.id(), &mut self.driver)
    }

    /// Accepts the request and waits for the peer's confirmation. `attach` creates the QP and attaches it to the id.
    /// Ignores [`Options::source`].
    ///
    /// # Errors
    /// [`Error::Core`] with `EINVAL` if the peer no longer waits, or if `attach` failed, [`Error::Attach`] with another
    /// error of `attach` as for [`Connection::connect`], [`Error::Ended`],
    /// [`Error::TimedOut`], [`Error::Cancelled`]. An error releases all resources of the connection.
    pub fn accept<Q, E: Into<BoxError>>(
        self,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<(Connection<D, O>, Q), Error> {
        let Incoming { mut driver, request } = self;
        let session = Session::accept(driver.drive(), request, options, attach)?;
        // The QP exists.
        Connection::open(driver, session, |_, _| Err(Errno::EINVAL))
    }

    /// Rejects the request with `reason` as private data, at most 148 bytes.
    ///
    /// # Errors
    /// [`Error::Core`]: refused if the reason is too long, or `EINVAL` if the peer no longer waits.
    pub fn reject(mut self, reason: &[u8]) -> Result<(), Error> {
        Ok(self.request.reject(self.driver.drive(), reason)?)
    }
}
