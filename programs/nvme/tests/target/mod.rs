//! A target for tests, on the simulator: as much of nvmet-rdma as an initiator meets. Its blocks survive its crashes.

mod connection;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use cmid_mio::proto::datapath::{Attaching, CompletionQueue as _};
use cmid_mio::proto::handshake::{Incoming, Options, Session};
use cmid_mio::proto::{Acks, ChannelKey, CmEvent, Errno, Event, IdKey, Limits, Next, PortSpace};
use cmid_mio::sim::SimDevice;
use cmid_mio::{Config, Mio};
use cmid_nvme::wire::{CmReply, CmRequest};
use connection::Connection;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

/// The length of a block, and the number of blocks.
pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: usize = 64;

/// The tokens of the target begin here. Its completion queues are polled each turn, so all have one token.
pub(crate) const TOKENS: usize = 5000;

/// The accept or the disconnect of a connection takes no longer.
const LIMIT: Duration = Duration::from_secs(1);

/// What the target has, and what its judge is told.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    /// The block and the first eight bytes of each write that was executed, in their order.
    pub(crate) written: Vec<(u64, u64)>,
    /// The answers to reads and writes that are held back, in turns.
    pub(crate) delay: u32,
    /// Reads and writes fail with this status, if it is not 0.
    pub(crate) status: u16,
    /// How often that was so.
    pub(crate) refused: u32,
    /// The reject of the next connections: the NVMe reason, if it is not 0.
    pub(crate) reject: u16,
    /// Commands that flushed.
    pub(crate) flushes: usize,
    /// Commands that asked for the keep-alive timer to be started anew.
    pub(crate) keep_alives: u32,
    /// The number of the next controller.
    pub(crate) controllers: u16,
    /// The controllers that are enabled.
    pub(crate) enabled: Vec<u16>,
    /// Whether it keeps the keys of commands that ask for their invalidation.
    pub(crate) keeps_keys: bool,
    /// How many keys it has invalidated.
    pub(crate) invalidated: u32,
    /// The asynchronous event that the next request for one gets.
    pub(crate) event: u32,
    /// What is wrong with the next answer to a read or a write.
    pub(crate) wrong: Option<Wrong>,
    /// The most pages of a command, as a power of two; 0 for no limit.
    pub(crate) mdts: u8,
    /// Whether the heads of the submission queues stay where they are, which is wrong too.
    pub(crate) keeps_heads: bool,
}

/// An answer of a target that is broken or hostile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    /// It has so many bytes.
    Length(usize),
    /// The identifier of the command has other bits here.
    Identifier(u16),
    /// The head of the submission queue.
    Head(u16),
    /// It comes twice.
    Twice,
    /// It invalidates no key of this connection.
    Key,
    /// It invalidates the key of another command.
    OtherKey,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Disk { bytes: vec![0; BLOCK * BLOCKS], controllers: 1, ..Disk::default() }
    }
}

/// A target that runs.
pub(crate) struct Target {
    driver: Mio<SimDevice>,
    registry: Registry,
    channel: ChannelKey,
    sessions: BTreeMap<IdKey, Session<Connection>>,
}

impl Target {
    pub(crate) fn new(device: SimDevice, registry: &Registry, addr: SocketAddr) -> Self {
        let config = Config { limits: Limits::default(), tokens: TOKENS + 1..TOKENS + 64 };
        let mut driver = Mio::new(device, registry, config).expect("a driver");
        let drive = driver.drive();
        let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
        let listener = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
        drive.bind(listener, addr).expect("an address");
        drive.listen(listener, 16).expect("a listener");
        let registry = registry.try_clone().expect("a registry");
        Target { driver, registry, channel, sessions: BTreeMap::new() }
    }

    /// Whether an event of the poll is the target's.
    pub(crate) fn handle(&mut self, event: &mio::event::Event) -> bool {
        event.token() == Token(TOKENS) || self.driver.handle(event)
    }

    pub(crate) fn turn(&mut self, disk: &mut Disk) {
        while let Next::Deliver | Next::Again = self.driver.turn() {
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                self.take(event, disk);
            }
        }
        let mut of = |session: &mut Session<Connection>| session.attached().is_some_and(|it| it.turn(disk).is_err());
        let failed: Vec<IdKey> =
            self.sessions.iter_mut().filter_map(|(&id, session)| of(session).then_some(id)).collect();
        failed.into_iter().for_each(|id| self.end(id));
    }

    /// Ends the connection that has this place among them.
    pub(crate) fn cut(&mut self, place: usize) {
        let count = self.sessions.len().max(1);
        if let Some(&id) = self.sessions.keys().nth(place % count) {
            self.end(id);
        }
    }

    fn end(&mut self, id: IdKey) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        if let Some(connection) = session.attached() {
            let _ = self.registry.deregister(&mut SourceFd(&connection.cq.fd().as_raw_fd()));
        }
        let _ = session.cancel(self.driver.drive());
    }

    fn take(&mut self, event: Event, disk: &mut Disk) {
        let drive = self.driver.drive();
        if event.cm() == Some(CmEvent::ConnectRequest) {
            let Ok(incoming) = Incoming::new(drive, event) else { return };
            let request = match CmRequest::decode(incoming.private_data()) {
                Ok(request) if disk.reject == 0 => request,
                Ok(_) => {
                    let [low, high] = disk.reject.to_le_bytes();
                    let _ = incoming.reject(drive, &[0, 0, low, high]);
                    return;
                }
                Err(error) => panic!("the initiator's private data: {error}"),
            };
            let reply = CmReply { receives: request.size }.encode();
            let attach = |device: &mut SimDevice, to: Attaching<'_>| Connection::attach(device, to, request);
            let options = Options { private_data: &reply, timeout: LIMIT, ..Options::default() };
            let session = Session::accept(drive, incoming, &options, attach);
            self.sessions.extend(session.map(|session| (session.id(), session)));
            return;
        }
        let Some(session) = self.sessions.get_mut(&event.id) else { return };
        let (id, is_end) = (event.id, event.cm() == Some(CmEvent::Disconnected));
        // The QP of a side that accepts is there already.
        let handled = session.handle(drive, event, |_, _| Err(Errno::EINVAL));
        match handled {
            Ok(Some(connected)) => {
                let fd = connected.attached.cq.fd().as_raw_fd();
                let watched = self.registry.register(&mut SourceFd(&fd), Token(TOKENS), Interest::READABLE);
                watched.expect("a watched queue");
            }
            Ok(None) if !is_end => {}
            Ok(None) | Err(_) => self.end(id),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        while let Some((&id, _)) = self.sessions.first_key_value() {
            self.end(id);
        }
    }
}
