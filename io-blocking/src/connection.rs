//! The active side, and a connection once it stands.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_proto::{
    CmEvent, ConnParam, Errno, Event, IdKey, Limits, Pollable, PortSpace, PrivateData, ReceivedParam, State, Verb,
};

use crate::cancel::Canceller;
use crate::driver::{Blocking, wait_error};
use crate::error::Error;

/// How to connect or accept.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The local address to connect from; `None`: what the route says.
    pub source: Option<SocketAddr>,
    /// Connection parameters.
    pub param: ConnParam,
    /// Private data to send: at most 56 bytes to connect, 196 to accept.
    pub private_data: &'a [u8],
    /// How long it may take altogether.
    pub timeout: Duration,
    /// Whose [`cancel`](Canceller::cancel) ends every wait of the connection.
    pub canceller: Option<Canceller>,
}

impl Default for Options<'_> {
    /// The device's own parameters, no private data, 10 seconds.
    fn default() -> Self {
        Options {
            source: None,
            param: ConnParam::default(),
            private_data: &[],
            timeout: Duration::from_secs(10),
            canceller: None,
        }
    }
}

/// What [`Connection::wait_for`] waited for.
#[derive(Debug)]
pub enum Ready {
    /// The user's own descriptor is readable.
    Descriptor,
    /// An event came.
    Event(Box<Event>),
}

/// A connection, with an id in synchronous mode on a driver of its own: it can be used from any one thread.
///
/// Dropping it ends the connection at once, as destroying an id does.
#[derive(Debug)]
pub struct Connection<D> {
    driver: Blocking<D>,
    id: IdKey,
    param: ReceivedParam,
    private_data: PrivateData,
}

impl<D: Pollable> Connection<D> {
    /// Connects to a listening peer. `attach` makes the QP, once the id has a device, and puts it on the id.
    ///
    /// # Errors
    /// [`Error::Core`] if the device could not begin (`ENODEV`, `ENETUNREACH`, ...), [`Error::Ended`] if it was
    /// rejected or not reached, [`Error::TimedOut`], [`Error::Cancelled`]. Nothing is left of it then.
    pub fn connect<Q>(
        device: D,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, IdKey) -> Result<Q, Errno>,
    ) -> Result<(Self, Q), Error> {
        let mut driver = Blocking::new(device, Limits::SINGLE, canceller(options)?);
        let deadline = driver.drive().within(options.timeout);
        let id = driver.drive().create_id(None, PortSpace::Tcp)?;
        driver.drive().resolve_addr(id, options.source, peer, deadline)?;
        driver.finish(id, Verb::ResolveAddr)?;
        driver.drive().resolve_route(id, deadline)?;
        driver.finish(id, Verb::ResolveRoute)?;
        let qp = driver.drive().attach_qp(id, |device, id| attach(device, id))?;
        driver.drive().connect(id, options.param, options.private_data, deadline)?;
        driver.finish(id, Verb::Connect)?;
        Ok((Connection::established(driver, id), qp))
    }

    /// The id's connect or accept has ended well.
    pub(crate) fn established(mut driver: Blocking<D>, id: IdKey) -> Self {
        let (param, private_data) = match driver.drive().core().sync_event(id) {
            Some(event) => (event.param, event.private_data),
            None => (ReceivedParam::default(), PrivateData::EMPTY),
        };
        Connection { driver, id, param, private_data }
    }

    /// The parameters that the peer's answer carried; zero on the passive side, where they came with the request.
    #[must_use]
    pub fn param(&self) -> ReceivedParam {
        self.param
    }

    /// The private data of the peer's answer, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The state of the connection, as far as events have been read.
    #[must_use]
    pub fn state(&self) -> State {
        self.driver.view().core().state(self.id).unwrap_or(State::Destroying)
    }

    /// The local address.
    ///
    /// # Errors
    /// What the device says.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// What the device says.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::peer_addr(self.driver.view().device(), self.id)
    }

    /// The id and its driver, for what this face does not show.
    pub fn parts(&mut self) -> (IdKey, &mut Blocking<D>) {
        (self.id, &mut self.driver)
    }

    /// What ends the waits of this connection from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// The next event of the connection that no call waited for, such as DISCONNECTED.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes within `timeout`; [`Error::Cancelled`].
    pub fn next_event(&mut self, timeout: Duration) -> Result<Event, Error> {
        loop {
            if let Ready::Event(event) = self.wait_for(None, timeout)? {
                return Ok(*event);
            }
        }
    }

    /// Waits for the next event of the connection, or for a descriptor of the user's own: a CQ's.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if neither comes within `timeout`; [`Error::Cancelled`].
    pub fn wait_for(&mut self, fd: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<Ready, Error> {
        let during = "wait_for";
        let end = self.driver.drive().within(timeout);
        let home = self.driver.drive().core().home(self.id);
        loop {
            if let Some(event) = home.and_then(|home| self.driver.drive().next_event(home)) {
                return Ok(Ready::Event(Box::new(event)));
            }
            let left = end.since(self.driver.drive().now());
            if self.driver.wait_with(fd, Some(left)).map_err(|errno| wait_error(errno, during))? {
                return Ok(Ready::Descriptor);
            }
            if left.is_zero() {
                return Err(Error::TimedOut { during });
            }
        }
    }

    /// Waits until the peer has ended the connection. [`disconnect`](Connection::disconnect) is then the answer.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the peer has not within `timeout`; [`Error::Cancelled`].
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<(), Error> {
        let end = self.driver.drive().within(timeout);
        loop {
            let left = end.since(self.driver.drive().now());
            if let Some(CmEvent::Disconnected | CmEvent::DeviceRemoval) = self.next_event(left)?.cm() {
                return Ok(());
            }
        }
    }

    /// Ends the connection, or answers the peer that did, and waits for the end to be confirmed.
    ///
    /// # Errors
    /// [`Error::Core`] if there is nothing to end, [`Error::TimedOut`] if the peer does not answer within `timeout`,
    /// [`Error::Cancelled`].
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = self.driver.drive().within(timeout);
        self.driver.drive().disconnect(self.id, deadline)?;
        self.driver.finish(self.id, Verb::Disconnect)
    }
}

pub(crate) fn canceller(options: &Options<'_>) -> Result<Canceller, Error> {
    match &options.canceller {
        Some(canceller) => Ok(canceller.clone()),
        None => Canceller::new().map_err(Error::Wait),
    }
}
