//! A simulated world for the protocol: replicas, disks, links and clients, with faults. A source of choices drives it:
//! the numbers of a seed, or the bytes of a fuzzer.
//!
//! It panics if an acknowledged record is lost or duplicated, if a deposed leader writes into the memory of a replica,
//! if two replicas commit different records, if a term has two leaders, or if the order of acknowledgements is not that
//! of the log. Once the faults end, all clients must succeed.

mod choices;
mod client;
mod crashes;
mod faults;
mod host;
mod link;
mod network;
mod reactors;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use choices::{Bytes, Choices, Seeded};
use client::Client;
pub use client::Done;
use host::Host;
use link::Link;

use crate::protocol::{
    Action, Config, Frame, Machine, Message, ProposeError, Record, ReplicaId, RequestId, Role, Term,
};

/// The parameters of a world.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of replicas.
    pub replicas: usize,
    /// The number of clients.
    pub clients: usize,
    /// The number of records that each client appends, one after the other.
    pub records: u64,
    /// The time when the faults end.
    pub faults: Duration,
    /// The number of reactors of a replica. With more than one, the connections are on other reactors than the machine:
    /// actions and reports between them take time.
    pub reactors: usize,
    /// Whether replicas fence. Without fencing a deposed leader writes, and the world panics.
    pub fences: bool,
}

/// The time limit after the end of the faults.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
enum Event {
    Message {
        from: ReplicaId,
        to: ReplicaId,
        epoch: u64,
        message: Message,
    },
    Write {
        from: ReplicaId,
        to: ReplicaId,
        epoch: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    Completion {
        from: ReplicaId,
        to: ReplicaId,
        epoch: u64,
        offset: usize,
        len: usize,
    },
    Lost {
        at: ReplicaId,
        peer: ReplicaId,
        epoch: u64,
    },
    /// Another reactor permits a peer to write.
    Grant {
        at: ReplicaId,
        peer: ReplicaId,
        epoch: u64,
    },
    /// Another reactor reports the beginning of a connection, or its end.
    Report {
        at: ReplicaId,
        life: u64,
        peer: ReplicaId,
        epoch: u64,
        connected: bool,
    },
    Connect {
        a: ReplicaId,
        b: ReplicaId,
    },
    Disk {
        at: ReplicaId,
        life: u64,
    },
    Restart {
        at: ReplicaId,
    },
    Fault,
    /// A client starts its next request, or ends its wait for this attempt.
    Client {
        client: usize,
        attempt: u64,
    },
    Request {
        to: ReplicaId,
        request: RequestId,
    },
    Reply {
        request: RequestId,
        reply: Reply,
    },
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Committed(u64),
    TryAt(Option<ReplicaId>),
}

/// The world.
#[derive(Debug)]
pub struct World<C> {
    size: Size,
    choices: C,
    now: Duration,
    /// Events by time and number.
    queue: BTreeMap<(Duration, u64), Event>,
    number: u64,
    hosts: Vec<Host>,
    links: Vec<Link>,
    clients: Vec<Client>,
    /// The leader of each term.
    leaders: BTreeMap<Term, ReplicaId>,
    /// The records that some replica has committed.
    committed: Vec<Record>,
    /// Called with each event.
    observe: Option<fn(Duration, &str)>,
}

/// Runs a world to its end. Returns the acknowledged records of the clients.
///
/// # Panics
/// If the protocol has violated one of the conditions of this module.
pub fn run(size: Size, choices: impl Choices) -> Vec<Done> {
    run_to_end(World::new(size, choices))
}

fn run_to_end(mut world: World<impl Choices>) -> Vec<Done> {
    let size = world.size;
    while !world.is_done() {
        assert!(world.now < size.faults + PATIENCE, "no progress: {world:#?}");
        world.step();
    }
    world.check_end()
}

/// The target of a fuzzer: runs a world with the choices of the bytes. The first byte selects the number of replicas
/// and of reactors.
///
/// # Panics
/// As [`run`].
pub fn run_bytes(data: &[u8]) {
    let (size, choices) = of_bytes(data);
    run(size, choices);
}

/// As [`run_bytes`], and passes the time and the description of each event to `observe`.
///
/// # Panics
/// As [`run`].
pub fn trace_bytes(data: &[u8], observe: fn(Duration, &str)) {
    let (size, choices) = of_bytes(data);
    let mut world = World::new(size, choices);
    world.observe = Some(observe);
    run_to_end(world);
}

fn of_bytes(data: &[u8]) -> (Size, Bytes<'_>) {
    let (first, choices) = data.split_first().unwrap_or((&0, &[]));
    let (replicas, reactors) = ([3, 5][usize::from(first % 2)], 1 + usize::from(first / 2 % 2));
    (Size { replicas, clients: 3, records: 6, faults: Duration::from_secs(3), reactors, fences: true }, Bytes(choices))
}

impl<C: Choices> World<C> {
    fn new(size: Size, choices: C) -> Self {
        let hosts = (0..size.replicas).map(|_| Host::new(size.replicas)).collect();
        let clients = (0..size.clients).map(Client::new).collect();
        let mut world = World {
            size,
            choices,
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            number: 0,
            hosts,
            links: Link::all(size.replicas),
            clients,
            leaders: BTreeMap::new(),
            committed: Vec::new(),
            observe: None,
        };
        for at in 0..size.replicas {
            world.restart(at);
        }
        for client in 0..size.clients {
            world.schedule(0, 50, Event::Client { client, attempt: 0 });
        }
        world.schedule(100, 900, Event::Fault);
        world
    }

    fn config(&mut self, id: ReplicaId) -> Config {
        Config {
            id,
            members: self.size.replicas,
            election_timeout: Duration::from_millis(150),
            heartbeat: Duration::from_millis(30),
            region: 400,
            frames: 4,
            frame: 120,
            uncommitted: 6,
            // Replicas with the same timeouts would start elections at the same times forever.
            seed: self.choices.below(1 << 16) * self.size.replicas as u64 + id as u64,
        }
    }

    /// Adds an event after at least `least` and less than `least + spread` milliseconds. Returns its time.
    fn schedule(&mut self, least: u64, spread: u64, event: Event) -> Duration {
        let delay = least + self.choices.below(spread.max(1));
        let at = self.now + Duration::from_millis(delay);
        self.schedule_at(at, event);
        at
    }

    fn schedule_at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    /// Handles the next event, or the next deadline of a machine.
    fn step(&mut self) {
        let deadline = |(at, host): (ReplicaId, &Host)| Some((host.machine.as_ref()?.deadline(), at));
        let tick = self.hosts.iter().enumerate().filter_map(deadline).min();
        let event = self.queue.first_key_value().map(|(&(at, _), _)| at);
        if let Some((due, at)) = tick.filter(|(due, _)| event.is_none_or(|event| *due <= event)) {
            self.now = self.now.max(due);
            self.with(at, |machine, now| machine.tick(now));
        } else if let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(observe) = self.observe {
            observe(self.now, &format!("{event:?}"));
        }
        match event {
            // The beginning of the connection is not reported to the machine yet.
            Event::Message { from, to, epoch, .. }
                if self.link(from, to).is(epoch) && self.hosts[to].known[from] != epoch =>
            {
                self.schedule(1, 1, event);
            }
            Event::Message { from, to, epoch, message } if self.link(from, to).is(epoch) => {
                self.with(to, |machine, now| machine.receive(now, from, message));
            }
            Event::Write { from, to, epoch, offset, bytes } if self.link(from, to).is(epoch) => {
                self.write(from, to, offset, &bytes);
            }
            Event::Completion { from, to, epoch, offset, len } if self.link(from, to).is(epoch) => {
                let bytes = &self.hosts[to].regions[from][offset..offset + len];
                let frame = Frame::decode(bytes).expect("an unread frame is overwritten");
                self.with(to, |machine, now| machine.receive_frame(now, from, frame));
            }
            // The connection has ended.
            Event::Message { .. } | Event::Write { .. } | Event::Completion { .. } => {}
            Event::Lost { at, peer, epoch } => {
                if self.link(at, peer).epoch == epoch {
                    self.hosts[at].writers[peer] = false;
                    self.report(at, peer, epoch, false);
                }
            }
            Event::Grant { at, peer, epoch } => self.grant(at, peer, epoch),
            Event::Report { at, life, peer, epoch, connected } => {
                if self.hosts[at].life == life {
                    self.take_report(at, peer, epoch, connected);
                }
            }
            Event::Connect { a, b } => self.connect(a, b),
            Event::Disk { at, life } => self.disk(at, life),
            Event::Restart { at } => self.restart(at),
            Event::Fault => self.fault(),
            Event::Client { client, attempt } => self.client(client, attempt),
            Event::Request { to, request } => self.request(to, request),
            Event::Reply { request, reply } => self.reply(request, reply),
        }
    }

    /// Passes an input to a machine, unless its replica is down, and performs the machine's actions.
    fn with(&mut self, at: ReplicaId, input: impl FnOnce(&mut Machine, Duration)) {
        let Some(machine) = &mut self.hosts[at].machine else { return };
        input(machine, self.now);
        while let Some(action) = self.hosts[at].machine.as_mut().and_then(Machine::next_action) {
            self.perform(at, action);
        }
        self.check(at);
    }

    fn perform(&mut self, at: ReplicaId, action: Action) {
        match action {
            Action::Store(batch) => {
                let host = &mut self.hosts[at];
                host.unstored.push_back(batch);
                if host.unstored.len() == 1 {
                    let life = host.life;
                    self.schedule(1, 8, Event::Disk { at, life });
                }
            }
            Action::Send(to, message) => self.send(at, to, message),
            Action::Write(to, offset, bytes) => self.post_write(at, to, offset as usize, bytes),
            Action::Grant(peer) if self.size.reactors == 1 => self.grant(at, peer, self.hosts[at].known[peer]),
            Action::Grant(peer) => {
                let (acts_at, epoch) = (self.acts_at(at, peer), self.hosts[at].known[peer]);
                self.schedule_at(acts_at, Event::Grant { at, peer, epoch });
            }
            Action::Fence if self.size.fences => self.fence(at),
            Action::Fence => {}
            Action::Committed(request, index) => {
                self.schedule(1, 5, Event::Reply { request, reply: Reply::Committed(index) });
            }
            // Clients try again after a time.
            Action::Deposed => {}
        }
    }

    fn request(&mut self, to: ReplicaId, request: RequestId) {
        let data = Client::data(request);
        let mut result = Ok(());
        self.with(to, |machine, _| result = machine.propose(request, data));
        if let Err(ProposeError::NotLeader(leader)) = result {
            self.schedule(1, 5, Event::Reply { request, reply: Reply::TryAt(leader) });
        }
    }

    /// Checks a replica after each input.
    fn check(&mut self, at: ReplicaId) {
        let Some(machine) = &self.hosts[at].machine else { return };
        if let Role::Leader { .. } = machine.role() {
            let leader = *self.leaders.entry(machine.term()).or_insert(at);
            assert_eq!(leader, at, "two leaders in term {}", machine.term());
        }
        for index in self.hosts[at].checked + 1..=machine.commit() {
            let record = machine.read(index).expect("a committed record exists");
            match self.committed.get(index as usize - 1) {
                Some(committed) => assert_eq!(committed, record, "replica {at} differs at {index}"),
                None => self.committed.push(record.clone()),
            }
        }
        self.hosts[at].checked = machine.commit();
    }

    fn is_done(&self) -> bool {
        let all = self.committed.len() as u64;
        let commits = |host: &Host| host.machine.as_ref().is_some_and(|machine| machine.commit() == all);
        self.clients.iter().all(|client| client.is_done(self.size.records)) && self.hosts.iter().all(commits)
    }
}
