//! A connection request that is not answered yet.

use core::net::SocketAddr;

use super::wait::Wait;
use super::{HandshakeError, Serve};
use crate::cm_event::CmEvent;
use crate::device::Device;
use crate::drive::{Drive, Observer, Poller, ReleasedId};
use crate::errno::Errno;
use crate::error::{BoxError, Error};
use crate::event::{ConnParam, Event, ReceivedParam};
use crate::key::{ChannelKey, IdKey};
use crate::private_data::PrivateData;
use crate::state::State;
use crate::time::Time;

/// A connection request: the id that the kernel has created for it, and the peer's parameters and private data.
///
/// The application reads the [addresses](Incoming::peer_addr) and the [private data](Incoming::private_data), and calls
/// [`accept`](Incoming::accept), [`reject`](Incoming::reject) or [`release`](Incoming::release). Here it rejects, and says why:
///
/// ```
/// use cmid_proto::datapath::QpParts;
/// use cmid_proto::handshake::{Dial, DialTo, Incoming};
/// use cmid_proto::{Acks, Drive, Limits, PortSpace};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut drive = Drive::new(host.device(), Limits::default());
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let (listener, address) = (drive.create_id(Some(channel), PortSpace::Tcp)?, "10.0.0.2:7471".parse()?);
/// drive.bind(listener, address)?;
/// drive.listen(listener, 8)?;
///
/// let deadline = drive.within(Duration::from_secs(5));
/// let mut dial = Dial::start(&mut drive, Some(channel), &DialTo::new(address), deadline)?;
/// let error = loop {
///     let Some(event) = drive.next_event(channel) else {
///         fabric.advance_to(fabric.next_due().ok_or("nothing is due")?); // a driver waits here
///         drive.set_now(fabric.now());
///         drive.readable_all();
///         let _next = drive.run(64);
///         continue;
///     };
///     if event.id == dial.id() {
///         if let Err(error) = dial.handle(&mut drive, event, |drive, id| drive.attach_qp(id, QpParts::attach)) {
///             break error;
///         }
///     } else {
///         let incoming = Incoming::new(&mut drive, event).map_err(|event| event.to_string())?;
///         incoming.reject(&mut drive, b"busy")?;
///     }
/// };
/// assert!(error.reject_data().is_some_and(|data| data.starts_with(b"busy")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "its id lives until it is accepted, rejected or released"]
pub struct Incoming {
    id: IdKey,
    request: Request,
}

/// The parameters and private data of the peer.
#[derive(Clone, Debug)]
struct Request {
    param: ReceivedParam,
    private_data: PrivateData,
}

impl Incoming {
    /// Takes a CONNECT_REQUEST: an event of the listener's channel, or in synchronous mode
    /// [`Core::sync_event`](crate::Core::sync_event) of a listener after [`Drive::get_request`]. Acks it.
    ///
    /// # Errors
    /// The event, if it is not a CONNECT_REQUEST.
    pub fn new<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        mut event: Event,
    ) -> Result<Self, Event> {
        if event.cm() != Some(CmEvent::ConnectRequest) {
            return Err(event);
        }
        if let Some(ack_token) = event.ack_token.take() {
            // The ack is refused only if the listener is gone; then no ack is owed.
            let _ = drive.ack(ack_token);
        }
        Ok(Incoming { id: event.id, request: Request { param: event.param, private_data: event.private_data } })
    }

    /// Returns the id of the request.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.id
    }

    /// Returns the peer's parameters, mirrored: its initiator depth is the local responder resources, and vice versa.
    #[must_use]
    pub fn param(&self) -> ReceivedParam {
        self.request.param
    }

    /// Returns the peer's private data, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// As [`Device::peer_addr`].
    pub fn peer_addr<D: Device, P: Poller<D>, O: Observer>(&self, drive: &Drive<D, P, O>) -> Result<SocketAddr, Errno> {
        drive.peer_addr(self.id)
    }

    /// Returns the local address that the peer connects to.
    ///
    /// # Errors
    /// As [`Device::local_addr`].
    pub fn local_addr<D: Device, P: Poller<D>, O: Observer>(
        &self,
        drive: &Drive<D, P, O>,
    ) -> Result<SocketAddr, Errno> {
        drive.local_addr(self.id)
    }

    /// Calls `attach`, which creates the QP with [`Drive::attach_qp`], and accepts the request. `private_data` is at
    /// most 196 bytes, 136 for datagrams. If the listener is in synchronous mode, the id enters that mode first.
    ///
    /// # Errors
    /// The error of `attach`, which may be any error ([`HandshakeError::Attach`]), or of [`Drive::accept`], with `EINVAL` if the peer no longer waits. The id is destroyed, also if `attach` panics.
    pub fn accept<D: Device, P: Poller<D>, O: Observer, Q, E: Into<BoxError>>(
        self,
        drive: &mut Drive<D, P, O>,
        param: ConnParam,
        private_data: &[u8],
        deadline: Time,
        attach: impl FnOnce(&mut Drive<D, P, O>, IdKey) -> Result<Q, E>,
    ) -> Result<Serve<Q>, HandshakeError> {
        let Incoming { id, request } = self;
        let mut wait = Wait::new(id, State::Accepting);
        if drive
            .core()
            .channel(id)
            .is_some_and(|channel| drive.core().channel_info(channel).is_some_and(|it| it.is_private))
        {
            to_sync(drive, id).map_err(|error| wait.fail(drive, error))?;
        }
        wait.attach(drive, attach)?;
        drive.accept(id, param, private_data, deadline).map_err(|error| wait.fail(drive, error))?;
        Ok(Serve { wait, param: request.param, private_data: request.private_data })
    }

    /// Rejects the request with at most 148 bytes of private data, 136 for datagrams, and destroys the id.
    ///
    /// # Errors
    /// The error of [`Drive::reject`], or of [`Drive::destroy`]. The id is destroyed also after an error of the reject,
    /// which rejects the peer without private data.
    pub fn reject<D: Device, P: Poller<D>, O: Observer>(
        self,
        drive: &mut Drive<D, P, O>,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let rejected = drive.reject(self.id, private_data);
        let destroyed = drive.destroy(self.id, Time::NEVER);
        rejected?;
        destroyed.map(drop)
    }

    /// Releases the request for a driver on another thread: migrates the id into synchronous mode and releases it.
    ///
    /// # Errors
    /// The error of [`Drive::migrate`] or [`Drive::release`]. The id is destroyed, which rejects the peer.
    pub fn release<D: Device, P: Poller<D>, O: Observer>(
        self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<ReleasedIncoming<D::Handle>, Error> {
        let Incoming { id, request } = self;
        match to_sync(drive, id).and_then(|()| drive.release(id)) {
            Ok(released_id) => Ok(ReleasedIncoming { released_id, request }),
            Err(error) => {
                drive.destroy_after_error(id);
                Err(error)
            }
        }
    }
}

/// Puts an id into synchronous mode.
pub(super) fn to_sync<D: Device, P: Poller<D>, O: Observer>(
    drive: &mut Drive<D, P, O>,
    id: IdKey,
) -> Result<(), Error> {
    if drive.core().id_info(id).is_some_and(|it| it.is_sync) {
        Ok(())
    } else {
        drive.migrate(id, None, Time::NEVER).map(drop)
    }
}

/// A connection request between two drivers. Dropping it rejects the peer.
#[derive(Debug)]
#[must_use = "dropping it rejects the peer"]
pub struct ReleasedIncoming<H> {
    released_id: ReleasedId<H>,
    request: Request,
}

impl<H> ReleasedIncoming<H> {
    /// Returns the peer's private data, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Adopts the request in a driver, on a channel or in synchronous mode (`None`). Both drivers must count time from
    /// the same epoch.
    ///
    /// # Errors
    /// The error of [`Drive::adopt`] or [`Drive::migrate`]. The id is destroyed, which rejects the peer.
    pub fn adopt<D: Device<Handle = H>, P: Poller<D>, O: Observer>(
        self,
        drive: &mut Drive<D, P, O>,
        channel: Option<ChannelKey>,
    ) -> Result<Incoming, Error> {
        let id = adopt_on(drive, self.released_id, channel)?;
        Ok(Incoming { id, request: self.request })
    }
}

/// Adopts an id, on a channel or in synchronous mode (`None`). If the migration fails, the id is destroyed.
pub(super) fn adopt_on<D: Device, P: Poller<D>, O: Observer>(
    drive: &mut Drive<D, P, O>,
    released_id: ReleasedId<D::Handle>,
    channel: Option<ChannelKey>,
) -> Result<IdKey, Error> {
    let id = drive.adopt(released_id)?;
    if channel.is_some() {
        drive.migrate(id, channel, Time::NEVER).inspect_err(|_| drive.destroy_after_error(id))?;
    }
    Ok(id)
}
