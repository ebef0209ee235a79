//! The active side, and a connection once it stands.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_proto::{
    Attaching, CmEvent, CmOption, ConnParam, Ece, Errno, Event, IdKey, Limits, Pollable, PortSpace, PrivateData,
    ReceivedParam, RefuseReason, Refused, RequestKind, State,
};

use crate::cancel::Canceller;
use crate::driver::{Blocking, Ready};
use crate::endpoint::Endpoint;
use crate::error::Error;

/// How to connect or accept.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The local address to connect from; `None`: that of the route.
    pub source: Option<SocketAddr>,
    /// Connection parameters.
    pub param: ConnParam,
    /// Private data to send: at most 56 bytes to connect, 196 to accept.
    pub private_data: &'a [u8],
    /// Options of the id, such as its type of service: set one after the other before anything else is done.
    pub settings: &'a [CmOption],
    /// Options of enhanced connection establishment for the peer. Where the provider can query a QP's own
    /// (`ibv_query_ece`), a connect sends those of the QP instead, as `rdma_connect` does.
    pub ece: Option<Ece>,
    /// How long it may take altogether.
    pub timeout: Duration,
    /// Whose [`cancel`](Canceller::cancel) ends every wait of the connection; `None`: a new one's.
    pub canceller: Option<Canceller>,
}

impl Default for Options<'_> {
    /// The device's own parameters, no private data, 10 seconds.
    fn default() -> Self {
        Options {
            source: None,
            param: ConnParam::default(),
            private_data: &[],
            settings: &[],
            ece: None,
            timeout: Duration::from_secs(10),
            canceller: None,
        }
    }
}

/// A connection, with an id in synchronous mode on a driver of its own: it can be used from any one thread.
///
/// Dropping it ends the connection at once, as destroying an id does.
#[derive(Debug)]
pub struct Connection<D: Pollable> {
    driver: Blocking<D>,
    id: IdKey,
    param: ReceivedParam,
    private_data: PrivateData,
    /// A teardown has come to its deadline.
    unsure: bool,
}

impl<D: Pollable> Connection<D> {
    /// Connects to a listening peer. `attach` makes the QP, once the id has a device, and puts it on the id.
    ///
    /// # Errors
    /// [`Error::Core`] if the device could not begin (`ENODEV`, `ENETUNREACH`, ...) or `attach` failed,
    /// [`Error::Ended`] if it was rejected or not reached, [`Error::TimedOut`], [`Error::Cancelled`]. Nothing is left
    /// of it then.
    pub fn connect<Q>(
        device: D,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, Errno>,
    ) -> Result<(Self, Q), Error> {
        let mut driver = Blocking::new(device, Limits::SINGLE, canceller(options.canceller.as_ref())?);
        let deadline = driver.drive().within(options.timeout);
        let id = driver.create_endpoint(&Endpoint {
            port_space: PortSpace::Tcp,
            src: options.source,
            dst: Some(peer),
            settings: options.settings,
            timeout: options.timeout,
        })?;
        if let Some(ece) = options.ece {
            driver.drive().set_ece(id, ece)?;
        }
        let qp = driver.drive().attach_qp(id, |device, attaching| attach(device, attaching))?;
        driver.drive().connect(id, options.param, options.private_data, deadline)?;
        driver.finish(id, RequestKind::Connect)?;
        Ok((Connection::established(driver, id), qp))
    }

    /// The id's connect or accept has ended well.
    pub(crate) fn established(mut driver: Blocking<D>, id: IdKey) -> Self {
        let (param, private_data) = match driver.drive().core().sync_event(id) {
            Some(event) => (event.param, event.private_data),
            None => (ReceivedParam::default(), PrivateData::EMPTY),
        };
        Connection { driver, id, param, private_data, unsure: false }
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
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::peer_addr(self.driver.view().device(), self.id)
    }

    /// The id and its driver, for what this face does not show. Events are taken with
    /// [`next_event`](Connection::next_event) even so: some may be kept there.
    pub fn parts(&mut self) -> (IdKey, &mut Blocking<D>) {
        (self.id, &mut self.driver)
    }

    /// What ends the waits of this connection from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// Another canceller from now on. After one that has cancelled, the connection can be ended in an orderly way.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.driver.set_canceller(canceller);
    }

    /// The next event of the connection that no call waited for, such as DISCONNECTED.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes within `timeout`, which may be zero; [`Error::Cancelled`]; [`Error::Wait`], or
    /// [`Error::Core`] if the channel cannot be read.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Event, Error> {
        let end = self.driver.drive().within(timeout);
        loop {
            if let Ready::Event(event) = self.driver.ready(self.id, None, end, "next_event")? {
                return Ok(*event);
            }
        }
    }

    /// Waits for the next event of the connection, or for a descriptor of the user's own: a CQ's.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if neither comes within `timeout`; otherwise as [`next_event`](Connection::next_event).
    pub fn wait_for(&mut self, fd: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<Ready, Error> {
        let end = self.driver.drive().within(timeout);
        self.driver.ready(self.id, fd, end, "wait_for")
    }

    /// Waits until the peer has ended the connection, to which [`disconnect`](Connection::disconnect) or
    /// [`teardown`](Connection::teardown) is the answer, or until the device has gone ([`State::Removed`]). Events
    /// before that one are dropped. Returns at once if the connection has ended already.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the peer has not within `timeout`; otherwise as [`next_event`](Connection::next_event).
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<(), Error> {
        let (end, mut last) = (self.driver.drive().within(timeout), false);
        loop {
            match self.driver.next_event(self.id).map(|event| event.cm()) {
                Some(Some(CmEvent::Disconnected | CmEvent::DeviceRemoval)) => return Ok(()),
                Some(_) => {}
                None if self.state() != State::Connected => return Ok(()),
                None => drop(self.driver.wait_until(None, end, &mut last, "wait_closed")?),
            }
        }
    }

    /// Ends the connection, or answers the peer that did, and waits for the end to be confirmed. The connection's
    /// packets may still be under way: see [`teardown`](Connection::teardown).
    ///
    /// # Errors
    /// [`Error::Core`] if there is nothing to end, [`Error::Ended`] when the device goes, [`Error::TimedOut`] if the
    /// peer does not answer within `timeout`, [`Error::Cancelled`], [`Error::Wait`].
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = self.driver.drive().within(timeout);
        self.driver.finish_cancelled(self.id, deadline)?;
        self.driver.drive().disconnect(self.id, deadline)?;
        self.driver.finish(self.id, RequestKind::Disconnect)
    }

    /// Ends the connection, or answers the peer that did, and waits until no packet of it can arrive any more. What
    /// it used (memory that the peer may write to, the QP's number) may then be used again, whatever the peer does.
    /// It takes the time wait of the path: half a second to two on RoCE, and more if the peer does not answer.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: not within `timeout`; there is nothing more to wait for, now or later (iWARP devices
    /// never tell, others not always), and destroying the QP is what is left. [`Error::Core`] if there was no
    /// connection, [`Error::Ended`] when the device goes, [`Error::Cancelled`], [`Error::Wait`].
    pub fn teardown(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = self.driver.drive().within(timeout);
        if self.driver.finish_cancelled(self.id, deadline)? == Some(RequestKind::Teardown) {
            self.note_teardown();
        }
        match self.driver.drive().teardown(self.id, deadline) {
            Ok(()) => {
                let ended = self.driver.finish(self.id, RequestKind::Teardown);
                self.note_teardown();
                ended
            }
            Err(cmid_proto::Error::Refused(Refused::Request { reason: RefuseReason::IsOver, .. })) => {
                if self.unsure {
                    Err(Error::TimedOut { during: RequestKind::Teardown.name() })
                } else {
                    Ok(())
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A teardown has ended: for the core also when only the deadline has ended it.
    fn note_teardown(&mut self) {
        self.unsure |= self.driver.view().core().sync_result(self.id) == Some(Err(Errno::ETIMEDOUT));
    }
}

pub(crate) fn canceller(given: Option<&Canceller>) -> Result<Canceller, Error> {
    match given {
        Some(canceller) => Ok(canceller.clone()),
        None => Canceller::new().map_err(Error::Wait),
    }
}
