//! A replica: a mio loop with the log, the clients and the connections with the peers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::net::TcpListener;
use mio::{Events, Poll, Registry, Token, Waker};

use crate::clients::Clients;
use crate::links::{LinkEvent, Polled};
use crate::protocol::{Action, Config, Machine, ReplicaId, Role, Term};
use crate::rdma::Memory;
use crate::store::Store;

/// The token of the waker of the loop, for the thread of the store.
const WOKEN: Token = Token(0);

/// The interval in which the loop checks the flag to end.
const TURN: Duration = Duration::from_millis(100);

/// The parameters of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The number of the replica, from 0 on.
    pub id: ReplicaId,
    /// The number of replicas.
    pub members: usize,
    /// A replica without messages of a leader starts an election after this time to twice this time.
    pub election_timeout: Duration,
    /// The folder of the log.
    pub folder: &'a Path,
}

/// A change of a replica, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The replica leads in this term.
    Leads(Term),
    /// The replica follows this leader in this term.
    Follows(ReplicaId, Term),
}

/// A replica on a transport.
#[derive(Debug)]
pub struct Replica<L> {
    poll: Poll,
    machine: Machine,
    links: L,
    clients: Clients,
    store: Store,
    start: Instant,
    change: Option<Change>,
}

impl<L: Polled> Replica<L> {
    /// Opens the store, serves clients, and connects to the peers: `connect` makes the links on the loop.
    ///
    /// # Errors
    /// The error text is one line with a remedy.
    pub fn open(
        options: Options<'_>,
        clients: TcpListener,
        connect: impl FnOnce(&Registry) -> Result<L>,
    ) -> Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WOKEN)?;
        let (store, saved) = Store::open(options.folder, options.id, waker)?;
        let links = connect(poll.registry())?;
        let clients = Clients::new(clients, poll.registry())?;
        let memory = Memory::default();
        let config = Config {
            id: options.id,
            members: options.members,
            election_timeout: options.election_timeout,
            heartbeat: options.election_timeout / 5,
            region: memory.region as u32,
            frames: memory.frames,
            frame: memory.frame,
            uncommitted: 1024,
            seed: fastrand::u64(..),
        };
        let start = Instant::now();
        let machine = Machine::new(config, saved.ballot, saved.records, Duration::ZERO);
        Ok(Replica { poll, machine, links, clients, store, start, change: None })
    }

    /// Runs until `ends` is set.
    ///
    /// # Errors
    /// The error text is one line with a remedy, for example for a full disk.
    pub fn run(&mut self, ends: &AtomicBool, mut log: impl FnMut(Change)) -> Result<()> {
        let mut events = Events::with_capacity(256);
        while !ends.load(Ordering::Relaxed) {
            let at_most = match self.clients.is_ready(&self.machine) {
                true => Duration::ZERO,
                false => self.machine.deadline().saturating_sub(self.start.elapsed()).min(TURN),
            };
            let timeout = self.links.before_poll(at_most);
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                if event.token() != WOKEN && !self.links.handle(event) {
                    self.clients.handle(event);
                }
            }
            self.links.turn()?;
            while let Some(event) = self.links.next_event() {
                self.take(event);
            }
            while let Some(number) = self.store.stored()? {
                self.machine.stored(number);
            }
            self.machine.tick(self.start.elapsed());
            self.clients.turn(&mut self.machine);
            self.perform();
            self.clients.flush();
            self.report(&mut log);
        }
        Ok(())
    }

    fn take(&mut self, event: LinkEvent) {
        let now = self.start.elapsed();
        match event {
            LinkEvent::Connected(peer) => self.machine.connected(peer),
            LinkEvent::Disconnected(peer) => self.machine.disconnected(now, peer),
            LinkEvent::Message(peer, message) => self.machine.receive(now, peer, message),
            LinkEvent::Frame(peer, frame) => self.machine.receive_frame(now, peer, frame),
        }
        // A grant or a fence takes effect before the next input.
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Store(batch) => self.store.store(batch),
                Action::Send(to, message) => self.links.send(to, message),
                Action::Write(to, offset, frame) => self.links.write(to, offset, frame),
                Action::Grant(to) => self.links.grant(to),
                Action::Fence => self.links.fence(),
                Action::Committed(request, index) => self.clients.committed(request, index),
                Action::Deposed => self.clients.deposed(),
            }
        }
    }

    fn report(&mut self, log: &mut impl FnMut(Change)) {
        let term = self.machine.term();
        let change = match self.machine.role() {
            Role::Leader { .. } => Some(Change::Leads(term)),
            Role::Follower { leader, .. } => leader.map(|leader| Change::Follows(leader, term)),
            Role::Candidate { .. } => None,
        };
        if let Some(change) = change.filter(|change| self.change != Some(*change)) {
            self.change = Some(change);
            log(change);
        }
    }
}
