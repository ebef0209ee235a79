//! Options of connects, accepts and listeners.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{CmOption, ConnParam, Device, Drive, Ece, Error, IdKey, Observer, Poller};

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
    /// The time limit of the whole connect or accept, on the clock of the driver.
    pub timeout: Duration,
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
        }
    }
}

/// Options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions<'a> {
    /// Options of the id, such as the reuse of its address. They are set in order, before the bind.
    pub settings: &'a [CmOption],
    /// The maximum number of unread requests in the kernel. 0, or more than the kernel's maximum, selects that maximum.
    /// The kernel drops further requests, and the peers repeat them (`ucma_event_handler`); on iWARP it rejects them.
    pub backlog: i32,
}

/// Sets options of an id, in order.
///
/// # Errors
/// As [`Drive::set_option`].
pub fn set<D: Device, P: Poller<D>, O: Observer>(
    drive: &mut Drive<D, P, O>,
    id: IdKey,
    settings: &[CmOption],
) -> Result<(), Error> {
    settings.iter().try_for_each(|&option| drive.set_option(id, option))
}
