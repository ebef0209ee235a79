//! The passive side, after its accept.

use super::wait::Wait;
use super::{Connected, HandshakeError};
use crate::device::Device;
use crate::drive::{Drive, Observer, Poller};
use crate::error::Error;
use crate::event::{Event, ReceivedParam};
use crate::key::IdKey;
use crate::machine::Progress;
use crate::private_data::PrivateData;
use crate::state::State;

/// The passive side of a handshake, after [`Incoming::accept`](super::Incoming::accept): waits for the peer's
/// confirmation.
///
/// ```
/// use cmid_proto::datapath::QpParts;
/// use cmid_proto::handshake::{Dial, DialTo, Incoming, Serve};
/// use cmid_proto::{Acks, ConnParam, Drive, Limits, PortSpace};
/// use cmid_sim::SimDevice;
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut drive = Drive::new(host.device(), Limits::default());
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
/// drive.bind(listener, "10.0.0.2:7471".parse()?)?;
/// drive.listen(listener, 8)?;
/// # let clients = drive.open_channel(Acks::OnDelivery)?;
/// # let deadline = drive.within(Duration::from_secs(5));
/// # let mut dial = Dial::start(&mut drive, Some(clients), &DialTo::new("10.0.0.2:7471".parse()?), deadline)?;
///
/// let mut serve: Option<Serve<QpParts<SimDevice>>> = None;
/// let connected = loop {
///     let Some(event) = drive.next_event(channel) else {
/// #         if let Some(event) = drive.next_event(clients) {
/// #             let _client = dial.handle(&mut drive, event, |drive, id| drive.attach_qp(id, QpParts::attach))?;
/// #             continue;
/// #         }
///         fabric.advance_to(fabric.next_due().ok_or("nothing is due")?); // a driver waits here
///         drive.set_now(fabric.now());
///         drive.readable_all();
///         let _next = drive.run(64);
///         continue;
///     };
///     if let Some(serve) = &mut serve {
///         if let Some(connected) = serve.handle(&mut drive, event)? {
///             break connected;
///         }
///     } else {
///         let incoming = Incoming::new(&mut drive, event).map_err(|event| event.to_string())?;
///         let deadline = drive.within(Duration::from_secs(5));
///         let attach = |drive: &mut Drive<SimDevice>, id| drive.attach_qp(id, QpParts::attach);
///         serve = Some(incoming.accept(&mut drive, ConnParam::default(), &[], deadline, attach)?);
///     }
/// };
/// println!("{} is connected, with {:?}", connected.id, connected.attached);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_create_ep")]
#[derive(Debug)]
#[must_use = "its id lives until the handshake has ended or is cancelled"]
pub struct Serve<Q> {
    pub(super) wait: Wait<Q>,
    /// The parameters of the peer's request.
    pub(super) param: ReceivedParam,
    pub(super) private_data: PrivateData,
}

impl<Q> Serve<Q> {
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
    /// # Errors
    /// [`HandshakeError`]. The id is destroyed, at the latest after the last ack that the application owes for it.
    pub fn handle<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        event: Event,
    ) -> Result<Option<Connected<Q>>, HandshakeError> {
        Ok(self.wait.take(drive, event)?.and_then(|_established| self.connected()))
    }

    /// Returns the connection once it is established, if no event for [`handle`](Serve::handle) follows: in synchronous
    /// mode, and for datagrams, where the accept ends with its call. Call it after the accept and after each wait.
    ///
    /// # Errors
    /// As [`handle`](Serve::handle).
    pub fn poll<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<Option<Connected<Q>>, HandshakeError> {
        if drive.core().state(self.wait.id) == Some(State::SidrResolved) {
            return Ok(self.connected());
        }
        match self.wait.sync_event(drive)? {
            Some(event) => self.handle(drive, event),
            None => Ok(None),
        }
    }

    fn connected(&mut self) -> Option<Connected<Q>> {
        self.wait.connected(self.param, core::mem::replace(&mut self.private_data, PrivateData::EMPTY), None)
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
