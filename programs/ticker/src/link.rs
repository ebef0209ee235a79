//! The active side of a connection: connects, and connects again after the connection has ended.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{HandshakeError, Options, Session};
use cmid_epoll::proto::{Acks, ChannelKey, CmOption, ConnParam, Drive, Event, Poller, PortSpace, Time};

use crate::error::{ConnectError, ConnectReason, Error};
use crate::port::Port;
use crate::wire::{Bytes, Service};

/// The ACK timeout: a packet without an acknowledgement is sent again after 4.096 µs times two to the power of 15,
/// which is 0.13 s. The peer derives its own timeout from it. On RoCE the default is 0.5 s (Linux 6.12) or 2.1 s (6.1),
/// so that with packet loss an answer of many packets would take seconds.
const ACK_TIMEOUT: CmOption = CmOption::AckTimeout(15);

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// The options of both sides: no RDMA reads, and sends that wait for the peer's receives without limit.
pub(crate) fn options(hello: &[u8]) -> Options<'_> {
    // With 7 retries, soft-RoCE would retry forever (hazard P48).
    let param = ConnParam { responder_resources: 0, initiator_depth: 0, retry_count: 6, ..ConnParam::default() };
    Options { param, private_data: hello, ..Options::default() }
}

/// The active side.
#[derive(Debug)]
pub struct Link<D: DataPath> {
    service: Service,
    peer: SocketAddr,
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
    pub fn new<P: Poller<D>>(drive: &mut Drive<D, P>, service: Service, peer: SocketAddr) -> Result<Self, Error> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let (until, connections) = (Time::ZERO, 0);
        Ok(Link { service, peer, channel, session: None, has_failed: false, until, connections, failure: None })
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
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        while let Some(event) = drive.next_event(self.channel) {
            self.take_event(drive, event);
        }
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: Event) {
        let Some(session) = &mut self.session else { return };
        match session.handle(drive, event, Port::open).map(|opened| opened.is_some()) {
            Ok(false) => {}
            Ok(true) => (self.connections, self.failure) = (self.connections + 1, None),
            Err(error) if session.is_over() => self.pause(drive, &error),
            Err(_) => self.has_failed = true,
        }
    }

    /// Connects after the pause, and ends a connection that has failed.
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        let is_up = self.is_up();
        match &mut self.session {
            None if self.until <= drive.now() => {
                let session = match drive.create_id(Some(self.channel), PortSpace::Tcp) {
                    Ok(id) => {
                        // Set before the route is resolved, because that sets timers of the connection manager. iWARP
                        // does not have this option.
                        let _ = drive.set_option(id, ACK_TIMEOUT);
                        Session::connect_on(drive, id, self.peer, &options(&self.service.hello()))
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
                    // Its events are dropped. An id that cannot be destroyed stays in the device.
                    let _ = session.cancel(drive);
                    (self.session, self.has_failed) = (None, false);
                    self.until = drive.within(PAUSE);
                }
            }
            None | Some(_) => {}
        }
    }

    fn pause<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, error: &HandshakeError) {
        self.failure = Some(ConnectError { peer: self.peer, reason: ConnectReason::of(self.service, error) });
        (self.session, self.until) = (None, drive.within(PAUSE));
    }
}
