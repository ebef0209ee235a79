//! The active side of a connection: connects, and connects again after the connection has ended.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{Dial, DialTo, HandshakeError};
use cmid_epoll::proto::{Acks, ChannelKey, CmEvent, CmOption, ConnParam, Event, IdKey, Poller, PrivateData, Time};

use crate::driver::Driver;
use crate::error::{ConnectError, ConnectReason, Error};
use crate::port::Port;
use crate::wire::{Bytes, Service};

/// The time limit of an attempt to connect.
const LIMIT: Duration = Duration::from_secs(10);

/// The ACK timeout: a packet without an acknowledgement is sent again after 4.096 µs times two to the power of 15,
/// which is 0.13 s. The peer derives its own timeout from it. On RoCE the default is 0.5 s (Linux 6.12) or 2.1 s (6.1),
/// so that with packet loss an answer of many packets would take seconds.
const ACK_TIMEOUT: CmOption = CmOption::AckTimeout(15);

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// The parameters of both sides: no RDMA reads, and sends that wait for the peer's receives without limit.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: false,
    // With 7, soft-RoCE would retry forever (hazard P48).
    retry_count: 6,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 0,
};

/// The active side.
#[derive(Debug)]
pub struct Link<D: DataPath> {
    service: Service,
    to: DialTo,
    channel: ChannelKey,
    state: State<D>,
    /// Connections made so far.
    connections: u64,
    /// The error of the last attempt to connect; `None` after a success.
    failure: Option<ConnectError>,
}

#[allow(clippy::large_enum_variant, reason = "a trader has two links, which are rarely moved")]
enum State<D: DataPath> {
    /// The time of the next attempt to connect.
    Down {
        until: Time,
    },
    Dialling(Dial<Port<D>>),
    Up {
        id: IdKey,
        port: Port<D>,
        /// Whether a post or a completion has failed.
        has_failed: bool,
    },
}

impl<D: DataPath> std::fmt::Debug for State<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Down { .. } => "Down",
            State::Dialling(_) => "Dialling",
            State::Up { .. } => "Up",
        })
    }
}

impl<D: DataPath> Link<D> {
    /// Creates a link for a service at a peer's address. The first [`handle_timeout`](Link::handle_timeout) connects.
    ///
    /// # Errors
    /// The error of the device.
    pub fn new<P: Poller<D>>(drive: &mut Driver<D, P>, service: Service, peer: SocketAddr) -> Result<Self, Error> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let hello = PrivateData::copy_of(&service.hello());
        let to = DialTo { param: PARAM, private_data: hello, ..DialTo::new(peer) };
        let state = State::Down { until: Time::ZERO };
        Ok(Link { service, to, channel, state, connections: 0, failure: None })
    }

    /// Whether it is connected.
    #[must_use]
    #[inline]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { has_failed: false, .. })
    }

    /// Returns the number of connections made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Returns the error of the last attempt to connect; `None` after a success.
    #[must_use]
    pub fn failure(&self) -> Option<ConnectError> {
        self.failure
    }

    /// Sends a message. Returns false, and sends nothing, without a connection or if the connection has failed.
    #[inline]
    pub fn send(&mut self, bytes: &Bytes) -> bool {
        let State::Up { port, has_failed, .. } = &mut self.state else { return false };
        let is_sent = port.send(bytes).is_ok();
        *has_failed |= !is_sent;
        is_sent
    }

    /// Returns the next message, if one has arrived.
    #[inline]
    pub fn next_message(&mut self) -> Option<Bytes> {
        let State::Up { port, has_failed: has_failed @ false, .. } = &mut self.state else { return None };
        match port.next_message() {
            Ok(bytes) => bytes,
            Err(_) => {
                *has_failed = true;
                None
            }
        }
    }

    /// Ends the connection in the next [`handle_timeout`](Link::handle_timeout), because the peer does not answer as it
    /// should.
    pub fn fail(&mut self) {
        if let State::Up { has_failed, .. } = &mut self.state {
            *has_failed = true;
        }
    }

    /// Handles all events.
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) {
        while let Some(event) = drive.next_event(self.channel) {
            self.take_event(drive, event);
        }
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, event: Event) {
        match &mut self.state {
            State::Dialling(dial) => {
                let attach =
                    |drive: &mut Driver<D, P>, id| drive.attach_qp(id, |device, to| Port::<D>::open(device, to));
                match dial.handle(drive, event, attach) {
                    Ok(None) => {}
                    Ok(Some(connected)) => {
                        (self.connections, self.failure) = (self.connections + 1, None);
                        self.state = State::Up { id: connected.id, port: connected.attached, has_failed: false };
                    }
                    Err(error) => self.pause(drive, &error),
                }
            }
            // Other events do not end a connection. If a connection has failed, a send or a receive fails.
            State::Up { id, has_failed, .. } if *id == event.id => {
                *has_failed |= matches!(event.cm(), Some(CmEvent::Disconnected | CmEvent::DeviceRemoval));
            }
            State::Up { .. } | State::Down { .. } => {}
        }
    }

    /// Connects after the pause, and ends a connection that has failed.
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) {
        match self.state {
            State::Down { until } if until <= drive.now() => {
                let deadline = drive.within(LIMIT);
                match Dial::start(drive, Some(self.channel), &self.to, deadline) {
                    Ok(dial) => {
                        // Set before the route is resolved, because that sets timers of the connection manager. iWARP
                        // does not have this option.
                        let _ = drive.set_option(dial.id(), ACK_TIMEOUT);
                        self.state = State::Dialling(dial);
                    }
                    Err(error) => self.pause(drive, &error),
                }
            }
            State::Up { id, has_failed: true, .. } => {
                self.state = State::Down { until: drive.within(PAUSE) };
                end(drive, id);
            }
            State::Down { .. } | State::Dialling(_) | State::Up { has_failed: false, .. } => {}
        }
    }

    fn pause<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, error: &HandshakeError) {
        self.failure = Some(ConnectError { peer: self.to.peer, reason: ConnectReason::of(self.service, error) });
        self.state = State::Down { until: drive.within(PAUSE) };
    }

    /// Makes [`fd`](Link::fd) readable at the next completion, for a program that sleeps.
    pub fn arm(&mut self) {
        if let State::Up { port, has_failed, .. } = &mut self.state {
            *has_failed |= port.arm().is_err();
        }
    }

    /// Returns the descriptor of the CQ of the connection.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Up { port, .. } => Some(port.fd()),
            State::Down { .. } | State::Dialling(_) => None,
        }
    }
}

/// Disconnects an id and destroys it with its QP. Its events are dropped. An id that cannot be destroyed stays in the
/// device.
pub(crate) fn end<D: DataPath, P: Poller<D>>(drive: &mut Driver<D, P>, id: IdKey) {
    // The disconnect is refused if the connection has ended already.
    let _ = drive.disconnect(id, Time::NEVER);
    let _ = drive.detach_qp(id, |device, id| device.destroy_qp(id));
    let _ = drive.destroy(id, Time::NEVER);
}
