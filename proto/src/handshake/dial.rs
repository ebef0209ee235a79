//! The active side.

use core::net::SocketAddr;

use super::wait::Wait;
use super::{Connected, HandshakeError};
use crate::device::Device;
use crate::drive::{Drive, Observer, Poller};
use crate::error::{BoxError, Error};
use crate::event::{ConnParam, Event};
use crate::key::{ChannelKey, IdKey};
use crate::machine::Progress;
use crate::private_data::PrivateData;
use crate::request::{PortSpace, Service};
use crate::state::State;
use crate::time::Time;

/// The destination and the parameters of a connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialTo {
    /// The port space of the id.
    pub port_space: PortSpace,
    /// The local address to connect from; `None` selects the one of the route.
    pub source: Option<SocketAddr>,
    /// The peer.
    pub peer: SocketAddr,
    /// Connection parameters. An id without a QP needs a QP number.
    pub param: ConnParam,
    /// The private data to send: at most 56 bytes, 180 for datagrams.
    pub private_data: PrivateData,
}

impl DialTo {
    /// Creates the parameters of a connection to `peer`: [`PortSpace::Tcp`], the device's default parameters, no
    /// private data.
    #[must_use]
    pub fn new(peer: SocketAddr) -> Self {
        DialTo {
            port_space: PortSpace::Tcp,
            source: None,
            peer,
            param: ConnParam::default(),
            private_data: PrivateData::EMPTY,
        }
    }
}

/// The active side of a handshake: resolves the address and the route, attaches a QP, connects. `Q` is the type that
/// the closure `attach` returns, such as a QP.
///
/// Each handshake ends in words, here at a port where nobody listens:
///
/// ```
/// use cmid_proto::datapath::QpParts;
/// use cmid_proto::handshake::{Dial, DialTo};
/// use cmid_proto::{Acks, Drive, Limits};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut drive = Drive::new(host.device(), Limits::SINGLE);
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let deadline = drive.within(Duration::from_secs(5));
/// let mut dial = Dial::start(&mut drive, Some(channel), &DialTo::new("10.0.0.2:7471".parse()?), deadline)?;
/// let error = loop {
///     let Some(event) = drive.next_event(channel) else {
///         fabric.advance_to(fabric.next_due().ok_or("nothing is due")?); // a driver waits here
///         drive.set_now(fabric.now());
///         drive.readable_all();
///         let _next = drive.run(64);
///         continue;
///     };
///     match dial.handle(&mut drive, event, |drive, id| drive.attach_qp(id, QpParts::attach)) {
///         Ok(None) => {}
///         Ok(Some(connected)) => panic!("{} is connected", connected.id),
///         Err(error) => break error,
///     }
/// };
/// assert_eq!(error.to_string(), "connect: id0: REJECTED (reason 8, no listener on this port): ECONNREFUSED");
/// assert_eq!(drive.core().state(dial.id()), None); // the error has destroyed the id
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_create_ep")]
#[derive(Debug)]
#[must_use = "its id lives until the handshake has ended or is cancelled"]
pub struct Dial<Q> {
    wait: Wait<Q>,
    deadline: Time,
    param: ConnParam,
    private_data: PrivateData,
}

impl<Q> Dial<Q> {
    /// Creates an id on a channel, or in synchronous mode (`None`), and starts to resolve the peer's address.
    /// `deadline` limits the whole handshake.
    ///
    /// # Errors
    /// As [`Drive::create_id`] and [`Drive::resolve_addr`]; there is then no id.
    pub fn start<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        channel: Option<ChannelKey>,
        to: &DialTo,
        deadline: Time,
    ) -> Result<Self, HandshakeError> {
        let id = drive.create_id(channel, to.port_space)?;
        Self::start_on(drive, id, to, deadline)
    }

    /// As [`start`](Dial::start), on an id that the application has created, for example to set its options first.
    /// Ignores the port space of `to`.
    ///
    /// # Errors
    /// As [`Drive::resolve_addr`]; the id is then destroyed.
    pub fn start_on<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        id: IdKey,
        to: &DialTo,
        deadline: Time,
    ) -> Result<Self, HandshakeError> {
        let mut wait = Wait::new(id, State::AddrResolving);
        drive.resolve_addr(id, to.source, to.peer, deadline).map_err(|error| wait.fail(drive, error))?;
        Ok(Dial { wait, deadline, param: to.param, private_data: to.private_data.clone() })
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.wait.id
    }

    /// Whether the handshake has returned its result or was cancelled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.wait.begun.is_none()
    }

    /// Takes an event of the id and acks it. Returns the connection once it is established. The handshake is then over:
    /// later events of the id belong to the application. Ignores events of other ids.
    ///
    /// `attach` is called once, when the id has a device and a route. It attaches a QP with [`Drive::attach_qp`] and
    /// returns a value for [`Connected::attached`], such as the QP. Without a QP it can return `Ok::<_, Error>(())`. It may
    /// fail with any error.
    ///
    /// # Errors
    /// [`HandshakeError`], with the error of `attach` as [`HandshakeError::Attach`]. The id is destroyed, at the latest after the last ack that the application owes for it. So it is if `attach` panics.
    pub fn handle<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        event: Event,
        attach: impl FnOnce(&mut Drive<D, P, O>, IdKey) -> Result<Q, E>,
    ) -> Result<Option<Connected<Q>>, HandshakeError> {
        let Some((reached, event)) = self.wait.take(drive, event)? else { return Ok(None) };
        self.wait.begun = self.proceed(drive, reached, attach).map_err(|error| self.wait.fail(drive, error))?;
        if self.wait.begun.is_some() {
            return Ok(None);
        }
        Ok(self.wait.connected(event.param, event.private_data, event.datagram))
    }

    /// Synchronous mode: as [`handle`](Dial::handle), with the event of a request that has ended. Call it after each
    /// wait. Returns `None` while the request is open.
    ///
    /// # Errors
    /// As [`handle`](Dial::handle).
    pub fn poll<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        attach: impl FnOnce(&mut Drive<D, P, O>, IdKey) -> Result<Q, E>,
    ) -> Result<Option<Connected<Q>>, HandshakeError> {
        match self.wait.sync_event(drive)? {
            Some(event) => self.handle(drive, event, attach),
            None => Ok(None),
        }
    }

    /// Makes the next request of the handshake. Returns the state of the id while the request is open; `None` if the
    /// handshake is complete.
    fn proceed<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        reached: State,
        attach: impl FnOnce(&mut Drive<D, P, O>, IdKey) -> Result<Q, E>,
    ) -> Result<Option<State>, HandshakeError> {
        let id = self.wait.id;
        if reached == State::AddrResolved {
            drive.resolve_route(id, self.deadline)?;
            return Ok(Some(State::RouteResolving));
        }
        if reached == State::RouteResolved {
            self.wait.attach(drive, attach)?;
            drive.connect(id, self.param, &self.private_data, self.deadline)?;
            let service =
                drive.core().id_info(id).map(|it| it.port_space).map_or(Service::Connected, PortSpace::service);
            return Ok(Some(match service {
                Service::Connected => State::Connecting,
                Service::Datagram => State::SidrReqSent,
            }));
        }
        if reached == State::Responded {
            drive.establish(id)?;
        }
        Ok(None)
    }

    /// Ends the handshake: destroys the id and drops the attached value. Does nothing once the handshake is over.
    ///
    /// # Errors
    /// As [`Drive::destroy`].
    pub fn cancel<D: Device, P: Poller<D>, O: Observer>(
        mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<Progress, Error> {
        self.wait.cancel(drive)
    }
}
