//! The active side of a connection: connects, and connects again after the connection has ended.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{DialTo, HandshakeError, Session};
use cmid_epoll::proto::{Acks, ChannelKey, CmOption, ConnParam, Event, Poller, PrivateData, Time};

use crate::driver::Driver;
use crate::error::{ConnectError, ConnectReason, Error};
use crate::port::Port;
use crate::wire::{Bytes, Service};

/// The time limit of an attempt to connect, or of an accept.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

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
    /// The connection, or an attempt to connect.
    session: Option<Session<Port<D>>>,
    /// Whether a post or a completion of the connection has failed.
    has_failed: bool,
    /// The time of the next attempt, while there is no session.
    until: Time,
    /// Connections made so far.
    connections: u64,
    /// The error of the last attempt to connect; `None` after a success.
    failure: Option<ConnectError>,
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
        let (until, connections) = (Time::ZERO, 0);
        Ok(Link { service, to, channel, session: None, has_failed: false, until, connections, failure: None })
    }

    /// Whether it is connected.
    #[must_use]
    #[inline]
    pub fn is_up(&self) -> bool {
        !self.has_failed && self.session.as_ref().is_some_and(Session::is_open)
    }

    /// Returns the port of a connection that has not failed.
    #[inline]
    fn port(&mut self) -> Option<&mut Port<D>> {
        self.session.as_mut().filter(|session| !self.has_failed && session.is_open())?.attached()
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
        let Some(port) = self.port() else { return false };
        let is_sent = port.send(bytes).is_ok();
        self.has_failed = !is_sent;
        is_sent
    }

    /// Returns the next message, if one has arrived.
    #[inline]
    pub fn next_message(&mut self) -> Option<Bytes> {
        let received = self.port()?.next_message();
        self.has_failed = received.is_err();
        received.ok().flatten()
    }

    /// Ends the connection in the next [`handle_timeout`](Link::handle_timeout), because the peer does not answer as it
    /// should.
    pub fn fail(&mut self) {
        self.has_failed |= self.is_up();
    }

    /// Handles all events.
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) {
        while let Some(event) = drive.next_event(self.channel) {
            self.take_event(drive, event);
        }
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, event: Event) {
        let Some(session) = &mut self.session else { return };
        match session.handle(drive, event, Port::open).map(|opened| opened.is_some()) {
            Ok(false) => {}
            Ok(true) => (self.connections, self.failure) = (self.connections + 1, None),
            Err(error) if session.is_over() => self.pause(drive, &error),
            Err(_) => self.has_failed = true,
        }
    }

    /// Connects after the pause, and ends a connection that has failed.
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) {
        let is_up = self.is_up();
        match &mut self.session {
            None if self.until <= drive.now() => {
                let session = match drive.create_id(Some(self.channel), self.to.port_space) {
                    Ok(id) => {
                        // Set before the route is resolved, because that sets timers of the connection manager. iWARP
                        // does not have this option.
                        let _ = drive.set_option(id, ACK_TIMEOUT);
                        Session::connect(drive, id, &self.to, LIMIT)
                    }
                    Err(error) => Err(error.into()),
                };
                match session {
                    Ok(session) => self.session = Some(session),
                    Err(error) => self.pause(drive, &error),
                }
            }
            // An attempt has no port yet, and ends by itself.
            Some(session) if !is_up => {
                if session.attached().is_some() {
                    end(drive, session);
                    (self.session, self.has_failed) = (None, false);
                    self.until = drive.within(PAUSE);
                }
            }
            None | Some(_) => {}
        }
    }

    fn pause<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, error: &HandshakeError) {
        self.failure = Some(ConnectError { peer: self.to.peer, reason: ConnectReason::of(self.service, error) });
        (self.session, self.until) = (None, drive.within(PAUSE));
    }

    /// Makes [`fd`](Link::fd) readable at the next completion, for a program that sleeps.
    pub fn arm(&mut self) {
        if let Some(port) = self.port() {
            self.has_failed = port.arm().is_err();
        }
    }

    /// Returns the descriptor of the CQ of the connection.
    #[must_use]
    pub fn fd(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.session.as_mut()?.attached()?.fd())
    }
}

/// Ends a connection at once. Its events are dropped. An id that cannot be destroyed stays in the device.
pub(crate) fn end<D: DataPath, P: Poller<D>>(drive: &mut Driver<D, P>, session: &mut Session<Port<D>>) {
    // The disconnect fails if the connection has ended already.
    let _ = session.disconnect(drive);
    let _ = session.cancel(drive);
}
