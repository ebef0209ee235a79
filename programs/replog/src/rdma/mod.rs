//! Connections over RDMA. The replica with the smaller number connects to the other one.

mod connection;
mod driver;
mod handshake;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use cmid_mio::proto::datapath::{Completion, CompletionQueue as _, DataPath};
use cmid_mio::proto::handshake::Session;
use cmid_mio::proto::redial::{Redial, RedialLimits};
use cmid_mio::proto::{Acks, ChannelKey, CmEvent, Errno, Event, IdKey, Next, Time};
use mio::{Registry, Token};

pub use connection::Memory;
use connection::{Connection, Received};
use driver::CQS;
pub use driver::{Driver, OnMio};

use crate::links::{LinkEvent, Links, Polled};
use crate::protocol::{Message, ReplicaId};

/// The time limit of each handshake.
const LIMIT: Duration = Duration::from_secs(2);

/// The number of completions that are polled at once.
const AT_ONCE: usize = 8;

/// The number of polls of a connection in a turn. A peer that sends without a pause does not keep the others waiting, and does
/// not let the unhandled messages grow.
const POLLS: usize = 32;

/// The time between two attempts to listen.
const RETRY: Duration = Duration::from_millis(100);

/// A replica is called until it is there.
const REDIAL: RedialLimits = RedialLimits {
    handshake: LIMIT,
    backoff: Duration::from_millis(50),
    backoff_max: Duration::from_millis(200),
    attempts: u32::MAX,
    within: Duration::MAX,
};

/// The state of the connection with a peer.
struct Peer<D: DataPath> {
    addr: SocketAddr,
    /// A connection under way: this replica calls the peer, or accepts its call.
    opening: Option<Session<Connection<D>>>,
    session: Option<Session<Connection<D>>>,
    /// The number of connections so far, and the number of the connection that actions concern.
    connections: u64,
    current: u64,
    /// When this replica calls the peer; `None` for a peer that calls.
    redial: Option<Redial>,
    /// Whether the CQ of the connection may have completions.
    readable: bool,
}

impl<D: DataPath> Peer<D> {
    fn connection(&mut self) -> Option<&mut Connection<D>> {
        self.session.as_mut()?.attached()
    }
}

/// Connections over RDMA, on a mio loop unless `R` says otherwise.
pub struct Rdma<D: DataPath, R: Driver<D> = OnMio<D>> {
    id: ReplicaId,
    memory: Memory,
    peers: Vec<Peer<D>>,
    /// The listener; `None` while there is no device.
    listener: Option<IdKey>,
    /// An earlier listener that the device has not destroyed: it has the port.
    undestroyed: Option<IdKey>,
    listen_at: Time,
    channel: ChannelKey,
    pub(crate) driver: R,
    /// For the times between calls.
    random: fastrand::Rng,
    happened: VecDeque<LinkEvent>,
    /// A peer that has written after its right to write was revoked.
    violator: Option<ReplicaId>,
}

impl<D: DataPath, R: Driver<D>> std::fmt::Debug for Rdma<D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rdma").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: DataPath> Rdma<D> {
    /// Listens at the address of replica `id`, and starts to connect to the others.
    ///
    /// # Errors
    /// The error text is one line with a remedy.
    pub fn new(device: D, registry: &Registry, id: ReplicaId, addrs: &[SocketAddr]) -> Result<Self> {
        let driver = OnMio::new(device, registry, addrs.len())?;
        Rdma::on(driver, id, addrs, Memory::default(), fastrand::Rng::new())
    }
}

impl<D: DataPath, R: Driver<D>> Rdma<D, R> {
    /// As [`Rdma::new`], on any loop.
    pub(crate) fn on(
        mut driver: R,
        id: ReplicaId,
        addrs: &[SocketAddr],
        memory: Memory,
        random: fastrand::Rng,
    ) -> Result<Self> {
        let channel = driver.drive().open_channel(Acks::OnDelivery).map_err(|error| {
            anyhow!("no RDMA device: {error}; load rdma_ucm and the driver of a device, and see `rdma link`")
        })?;
        let now = driver.drive().within(Duration::ZERO);
        let peer = |(number, &addr): (ReplicaId, &SocketAddr)| Peer {
            addr,
            opening: None,
            session: None,
            connections: 0,
            current: 0,
            redial: (number > id).then(|| Redial::new(id as u64, REDIAL, now)),
            readable: false,
        };
        let mut rdma = Rdma {
            id,
            memory,
            peers: addrs.iter().enumerate().map(peer).collect(),
            listener: None,
            undestroyed: None,
            listen_at: now,
            channel,
            driver,
            random,
            happened: VecDeque::new(),
            violator: None,
        };
        rdma.listen()?;
        Ok(rdma)
    }

    fn take_event(&mut self, event: Event) -> Result<()> {
        if Some(event.id) == self.listener {
            // Only DEVICE_REMOVAL ends a listener.
            if event.cm() == Some(CmEvent::DeviceRemoval) {
                self.listener = None;
                self.listen_at = self.driver.drive().within(RETRY);
                self.destroy_listener(event.id);
            }
            return Ok(());
        }
        if event.cm() == Some(CmEvent::ConnectRequest) {
            self.accept(event);
            return Ok(());
        }
        let is_of = |session: &Session<_>| session.id() == event.id;
        if let Some(peer) = self.peers.iter().position(|peer| peer.opening.as_ref().is_some_and(is_of)) {
            return self.continue_handshake(peer, event);
        }
        if let Some(number) = self.peers.iter().position(|peer| peer.session.as_ref().is_some_and(is_of)) {
            if let Some(session) = &mut self.peers[number].session {
                let handled = session.handle(self.driver.drive(), event, Connection::with(self.memory));
                if handled.is_err() || !session.is_open() {
                    self.close(number);
                }
            }
        }
        Ok(())
    }

    /// The handshake of a peer has ended with a connection.
    fn connected(&mut self, peer: ReplicaId) {
        // A new connection shows that the peer has ended the old one.
        self.close(peer);
        self.peers[peer].session = self.peers[peer].opening.take();
        let Peer { session: Some(session), .. } = &mut self.peers[peer] else { return };
        let Some(connection) = session.attached() else { return };
        if self.driver.watch(peer, &connection.cq).is_err() {
            self.close(peer);
            return;
        }
        self.peers[peer].connections += 1;
        self.happened.push_back(LinkEvent::Connected(peer));
        // Messages may have arrived before the event.
        self.peers[peer].readable = true;
    }

    /// Checks that a deposed leader has written nothing.
    fn check_revoked(&mut self, peer: ReplicaId) {
        if self.peers[peer].connection().is_some_and(|connection| connection.is_violated()) {
            self.violator.get_or_insert(peer);
        }
    }

    /// Ends a connection. The peer cannot write afterwards.
    fn close(&mut self, peer: ReplicaId) {
        self.check_revoked(peer);
        let Some(mut session) = self.peers[peer].session.take() else { return };
        if let Some(connection) = session.attached() {
            self.driver.unwatch(&connection.cq);
        }
        let drive = self.driver.drive();
        // An id that cannot be destroyed is in state `Failed`.
        let _ = session.cancel(drive);
        drop(session);
        let now = drive.within(Duration::ZERO);
        if let Some(redial) = &mut self.peers[peer].redial {
            // It waits for the next attempt: there is no limit on them.
            let _ = redial.lost(now, self.random.u32(..));
        }
        self.happened.push_back(LinkEvent::Disconnected(peer));
    }

    /// Takes completions of a peer. If there may be more, the next turn goes on.
    fn take_completions(&mut self, peer: ReplicaId) {
        let Some(connection) = self.peers[peer].connection() else { return };
        let mut completions = [Completion::default(); AT_ONCE];
        let (mut result, mut polls) = (connection.arm(), 0);
        while result.is_ok() {
            if polls == POLLS {
                self.peers[peer].readable = true;
                return;
            }
            polls += 1;
            let polled = connection.cq.poll(&mut completions);
            result = polled.and_then(|count| {
                for completion in &completions[..count] {
                    match connection.receive(completion)? {
                        Received::Message(message) => self.happened.push_back(LinkEvent::Message(peer, message)),
                        Received::Frame(frame) => self.happened.push_back(LinkEvent::Frame(peer, frame)),
                        Received::Nothing => {}
                    }
                }
                Ok(())
            });
            if result.is_ok() && polled != Ok(AT_ONCE) {
                return;
            }
        }
        self.close(peer);
    }

    /// Looks which CQs have notified, in a loop without a poll.
    pub(crate) fn read_notifications(&mut self) {
        for peer in &mut self.peers {
            peer.readable |= peer.connection().is_some_and(|connection| connection.has_notified());
        }
    }

    /// Returns what the drive does next.
    pub(crate) fn next_action(&mut self) -> Next {
        self.driver.drive().next_action()
    }

    /// Whether there is something to do without waiting.
    pub(crate) fn has_work(&self) -> bool {
        !self.happened.is_empty() || self.peers.iter().any(|peer| peer.readable)
    }

    /// Returns when the next attempt to listen or to connect is due.
    pub(crate) fn next_attempt(&self) -> Option<Time> {
        let listen = self.listener.is_none().then_some(self.listen_at);
        self.peers.iter().filter_map(|peer| peer.redial.as_ref()?.timeout()).chain(listen).min()
    }

    /// Lets all peers keep their right to write, and expects that they do not use it: a device that does not enforce
    /// access rights.
    pub(crate) fn pretend_to_fence(&mut self) {
        for connection in self.peers.iter_mut().filter_map(Peer::connection) {
            // Without a hash nothing is expected.
            let _ = connection.expect_no_writes();
        }
    }

    /// Runs `act` on the current connection, if it has not ended. If `act` fails, the connection ends.
    fn with(&mut self, peer: ReplicaId, act: impl FnOnce(&mut Connection<D>) -> Result<(), Errno>) {
        let peer_state = &mut self.peers[peer];
        if peer_state.connections != peer_state.current {
            return;
        }
        if peer_state.connection().is_some_and(|connection| act(connection).is_err()) {
            self.close(peer);
        }
    }
}

impl<D: DataPath> Polled for Rdma<D> {
    fn before_poll(&mut self, at_most: Duration) -> Duration {
        let now = self.driver.drive().within(Duration::ZERO);
        let at_most = match self.next_attempt() {
            _ if self.has_work() => Duration::ZERO,
            Some(due) => at_most.min(due.since(now)),
            None => at_most,
        };
        self.driver.mio.timeout(Some(at_most)).unwrap_or(at_most)
    }

    fn handle(&mut self, event: &mio::event::Event) -> bool {
        let Token(token) = event.token();
        match token.checked_sub(CQS).and_then(|peer| self.peers.get_mut(peer)) {
            Some(peer) => {
                peer.readable = true;
                true
            }
            None => self.driver.mio.handle(event),
        }
    }
}

impl<D: DataPath, R: Driver<D>> Links for Rdma<D, R> {
    fn turn(&mut self) -> Result<()> {
        for peer in 0..self.peers.len() {
            if std::mem::take(&mut self.peers[peer].readable) {
                self.take_completions(peer);
            }
        }
        while let Next::Deliver | Next::Again = self.driver.turn() {
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                self.take_event(event)?;
            }
        }
        self.retry()?;
        if let Some(peer) = self.violator {
            bail!("replica {peer} has written without the right to it: use a device that enforces access rights");
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        let event = self.happened.pop_front()?;
        if let LinkEvent::Connected(peer) = event {
            self.peers[peer].current += 1;
        }
        Some(event)
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        self.with(to, |connection| connection.send(message));
    }

    fn write(&mut self, to: ReplicaId, offset: u32, frame: Vec<u8>) {
        self.with(to, |connection| connection.write(offset, &frame));
    }

    fn grant(&mut self, to: ReplicaId) {
        self.check_revoked(to);
        self.with(to, |connection| connection.permit(true));
    }

    fn fence(&mut self) {
        for peer in 0..self.peers.len() {
            if self.peers[peer].connection().is_some_and(|connection| connection.permit(false).is_err()) {
                self.close(peer);
            }
        }
    }
}
