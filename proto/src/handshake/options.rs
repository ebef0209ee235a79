//! The parameters of a session.

use core::net::SocketAddr;
use core::time::Duration;

use crate::device::Device;
use crate::drive::{Drive, Observer, Poller};
use crate::error::Error;
use crate::event::{ConnParam, Ece};
use crate::key::IdKey;
use crate::request::CmOption;
use crate::time::Time;

/// Options of a connect or accept.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The local address to connect from; `None` selects the one of the route. An accept ignores it.
    pub source: Option<SocketAddr>,
    /// Connection parameters.
    pub param: ConnParam,
    /// Private data to send: at most 56 bytes to connect, 196 to accept.
    pub private_data: &'a [u8],
    /// Options of the id, such as its type of service. They are set in order, before any other request. The type of
    /// service is that of the side that connects: an accept refuses it as sent already.
    pub settings: &'a [CmOption],
    /// Options of enhanced connection establishment (ECE) for the peer. Where the provider can query the ECE of a QP
    /// (`ibv_query_ece`), a connect sends the QP's options instead, as `rdma_connect` does.
    pub ece: Option<Ece>,
    /// The time limit of the whole connect or accept, on the clock of the driver; of a [`Session`](super::Session) that of
    /// its end too.
    pub timeout: Duration,
    /// The time until which the connect or accept must have ended too, on the same clock, such as that of
    /// [`Todo::Dial`](crate::redial::Todo::Dial).
    pub deadline: Time,
}

impl Default for Options<'_> {
    /// The device's default parameters, no private data, 10 seconds.
    fn default() -> Self {
        Options {
            source: None,
            param: ConnParam::default(),
            private_data: &[],
            settings: &[],
            ece: None,
            timeout: Duration::from_secs(10),
            deadline: Time::NEVER,
        }
    }
}

impl Options<'_> {
    /// Sets the options of an id, and returns the deadline of its handshake. If one is refused, the id is destroyed.
    pub(super) fn begin<D: Device, P: Poller<D>, O: Observer>(
        &self,
        drive: &mut Drive<D, P, O>,
        id: IdKey,
    ) -> Result<Time, Error> {
        let set = self.settings.iter().try_for_each(|&option| drive.set_option(id, option));
        let set = set.and_then(|()| self.ece.map_or(Ok(()), |ece| drive.set_ece(id, ece)));
        set.inspect_err(|_| drive.destroy_after_error(id))?;
        Ok(drive.within(self.timeout).min(self.deadline))
    }
}
