//! A replica: the machine, its connections and its journal, without threads.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use cmid_mio::proto::Time;
use cmid_mio::sim::{Node, Program, SimDevice, Turn};

use super::Shared;
use super::client::{Reply, Request, data};
use super::journal::Journal;
use super::links::{InWorld, MEMORY};
use crate::links::{LinkEvent, Links as _};
use crate::protocol::{Action, Config, Machine, ProposeError, ReplicaId};
use crate::rdma::Rdma;

const PORT: u16 = 7500;

/// The host of a replica.
pub(super) fn name(id: ReplicaId) -> String {
    format!("replica {id}")
}

/// The time after which a replica that could not start, because it had no device, is started again.
const RESTART: Duration = Duration::from_millis(100);

/// Starts a replica until that succeeds, as an operator does.
pub(super) struct Service {
    node: Node,
    id: ReplicaId,
    shared: Rc<Shared>,
    replica: Option<Replica>,
}

impl Service {
    pub(super) fn new(node: &Node, id: ReplicaId, shared: &Rc<Shared>) -> Self {
        shared.judge.borrow_mut().starts(id);
        shared.requests[id].open(node);
        Service { node: node.clone(), id, shared: Rc::clone(shared), replica: None }
    }
}

impl Program for Service {
    fn turn(&mut self, now: Time) -> Turn {
        if self.replica.is_none() {
            self.replica = Replica::start(&self.node, self.id, &self.shared).ok();
        }
        match &mut self.replica {
            Some(replica) => replica.turn(now),
            None => Turn::Wait(Some(now.after(RESTART))),
        }
    }
}

struct Replica {
    id: ReplicaId,
    shared: Rc<Shared>,
    machine: Machine,
    links: Rdma<SimDevice, InWorld>,
    journal: Journal,
}

impl Replica {
    /// Starts with what the disk has.
    fn start(node: &Node, id: ReplicaId, shared: &Rc<Shared>) -> Result<Self> {
        let size = shared.size;
        let addrs: Vec<_> = (0..size.replicas).map(|peer| node.addr_of(&name(peer), PORT)).collect();
        let (journal, saved) = Journal::open(node.disk());
        let config = Config {
            id,
            members: size.replicas,
            election_timeout: Duration::from_millis(150),
            heartbeat: Duration::from_millis(30),
            region: MEMORY.region as u32,
            frames: MEMORY.frames,
            frame: MEMORY.frame,
            uncommitted: 6,
            // Replicas with the same timeouts would start elections at the same times forever.
            seed: node.random(1 << 16) * size.replicas as u64 + id as u64,
        };
        let machine = Machine::new(config, saved.ballot, saved.records, since_zero(node.now()));
        let links = Rdma::in_world(node, id, &addrs)?;
        Ok(Replica { id, shared: Rc::clone(shared), machine, links, journal })
    }

    /// Passes an input to the machine, and does what it says.
    fn input(&mut self, input: impl FnOnce(&mut Machine)) {
        input(&mut self.machine);
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Store(batch) => self.journal.store(&batch),
                Action::Send(to, message) => self.links.send(to, message),
                Action::Write(to, offset, frame) => self.links.write(to, offset, frame),
                Action::Grant(to) => self.links.grant(to),
                Action::Fence if self.shared.size.fences => self.links.fence(),
                Action::Fence => self.links.pretend_to_fence(),
                Action::Committed(request, index) => self.answer(request, Reply::Committed(request, index)),
                // Clients try again after a time.
                Action::Deposed => {}
            }
        }
        self.shared.judge.borrow_mut().check(self.id, &self.machine);
    }

    fn propose(&mut self, request: Request) {
        let mut result = Ok(());
        self.input(|machine| result = machine.propose(request, data(request)));
        if let Err(ProposeError::NotLeader(leader)) = result {
            self.answer(request, Reply::TryAt(request, leader));
        }
    }

    fn answer(&self, request: Request, reply: Reply) {
        self.shared.replies[request.client as usize - 1].post(reply);
    }

    fn turn(&mut self, now: Time) -> Turn {
        let time = since_zero(now);
        self.links.begin_turn(now);
        if let Err(error) = self.links.turn() {
            panic!("replica {}: {error:#}", self.id);
        }
        while let Some(event) = self.links.next_event() {
            self.input(|machine| match event {
                LinkEvent::Connected(peer) => machine.connected(peer),
                LinkEvent::Disconnected(peer) => machine.disconnected(time, peer),
                LinkEvent::Message(peer, message) => machine.receive(time, peer, message),
                LinkEvent::Frame(peer, frame) => machine.receive_frame(time, peer, frame),
            });
        }
        while let Some(number) = self.journal.stored(now) {
            self.input(|machine| machine.stored(number));
        }
        if self.machine.deadline() <= time {
            self.input(|machine| machine.tick(time));
        }
        while let Some(request) = self.shared.requests[self.id].take(now) {
            self.propose(request);
        }
        let Turn::Wait(due) = self.links.next_turn() else { return Turn::Again };
        let deadline = Time::ZERO.after(self.machine.deadline());
        let others = [self.journal.due(), self.shared.requests[self.id].due(), Some(deadline)];
        Turn::Wait(others.into_iter().flatten().chain(due).min())
    }
}

fn since_zero(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}
