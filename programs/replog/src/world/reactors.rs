//! The connections of a replica in a world: those of the program, on the simulated device. Between two reactors actions and
//! events take time, but stay in order.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use cmid_mio::proto::{Drive, Limits, Next, Time};
use cmid_mio::sim::{Cq, Node, SimDevice, SimHandle, Turn};

use super::Size;
use crate::links::{LinkEvent, Links as _};
use crate::protocol::ReplicaId;
use crate::rdma::{Act, Command, Driver, Memory, Part, Rdma};

/// Small, so that leaders often reach its end.
pub(super) const MEMORY: Memory = Memory { region: 400, frames: 4, messages: 8, frame: 120 };

/// The longest time between the reactors.
const SPREAD: Duration = Duration::from_millis(10);

/// A reactor of a program, which has no poll.
struct InWorld(Drive<SimDevice>);

impl Driver<SimDevice> for InWorld {
    type Poller = ();

    fn drive(&mut self) -> &mut Drive<SimDevice> {
        &mut self.0
    }

    fn turn(&mut self) -> Next {
        self.0.run(usize::MAX)
    }

    /// A turn polls all CQs.
    fn watch(&mut self, _: ReplicaId, _: &Cq) -> io::Result<()> {
        Ok(())
    }

    fn unwatch(&mut self, _: &Cq) {}
}

/// The reactor without the log.
struct Other {
    links: Rdma<SimDevice, InWorld>,
    commands: VecDeque<(Time, Command<SimHandle>)>,
    events: VecDeque<(Time, LinkEvent)>,
    /// The number of the last connection with each peer that the machine knows.
    current: Vec<u64>,
}

/// The connections of a replica.
pub(super) struct Reactors {
    node: Node,
    /// The listener; with a single reactor also the connections.
    own: Rdma<SimDevice, InWorld>,
    other: Option<Other>,
}

impl Reactors {
    /// Listens, and starts to connect.
    pub(super) fn new(node: &Node, size: Size, id: ReplicaId, addrs: &[SocketAddr]) -> Result<Self> {
        let rdma = |reactor| {
            let mut drive = Drive::new(node.device(), Limits::default());
            drive.set_now(node.now());
            let random = fastrand::Rng::with_seed(node.random(u64::MAX));
            Rdma::on(InWorld(drive), id, addrs, Part { reactor, reactors: size.reactors }, MEMORY, random)
        };
        let other = match size.reactors {
            1 => None,
            _ => Some(Other {
                links: rdma(1)?,
                commands: VecDeque::new(),
                events: VecDeque::new(),
                current: vec![0; addrs.len()],
            }),
        };
        Ok(Reactors { node: node.clone(), own: rdma(0)?, other })
    }

    /// Does what can be done without waiting.
    ///
    /// # Errors
    /// What ends the program: a peer has written without the right to it.
    pub(super) fn turn(&mut self, now: Time) -> Result<()> {
        self.own.begin_turn(now);
        self.own.turn()?;
        let requests = self.own.take_requests();
        let Some(other) = &mut self.other else { return Ok(()) };
        for (peer, request) in requests {
            later(&self.node, &mut other.commands, Command::Adopt(peer, request));
        }
        other.links.begin_turn(now);
        while let Some(command) = due(&mut other.commands, now) {
            other.links.perform(command);
        }
        other.links.turn()?;
        while let Some(event) = other.links.next_event() {
            later(&self.node, &mut other.events, event);
        }
        Ok(())
    }

    /// Returns the next event.
    pub(super) fn next_event(&mut self, now: Time) -> Option<LinkEvent> {
        let Some(other) = &mut self.other else { return self.own.next_event() };
        let event = due(&mut other.events, now)?;
        if let LinkEvent::Connected(peer) = event {
            other.current[peer] += 1;
        }
        Some(event)
    }

    /// Does something on the connection of the last event with a peer.
    pub(super) fn act(&mut self, to: ReplicaId, act: Act) {
        match &mut self.other {
            None => self.own.act(to, act),
            Some(other) => later(&self.node, &mut other.commands, Command::Act(to, other.current[to], act)),
        }
    }

    /// Revokes the right of all peers to write. The machine waits until the other reactor has done that, after what it was
    /// told before.
    pub(super) fn fence(&mut self) {
        self.own.fence();
        let Some(other) = &mut self.other else { return };
        for (_, command) in other.commands.drain(..) {
            other.links.perform(command);
        }
        other.links.fence();
    }

    /// As [`Reactors::fence`], on a device that does not enforce it.
    pub(super) fn pretend_to_fence(&mut self) {
        let rdma = self.other.as_mut().map_or(&mut self.own, |other| &mut other.links);
        rdma.pretend_to_fence();
    }

    /// Returns when the next turn is due.
    pub(super) fn next_turn(&mut self) -> Turn {
        let Reactors { own, other, .. } = self;
        let times =
            other.as_ref().map(|other| [other.commands.front().map(|it| it.0), other.events.front().map(|it| it.0)]);
        let mut first = times.into_iter().flatten().flatten().min();
        for rdma in [Some(own), other.as_mut().map(|other| &mut other.links)].into_iter().flatten() {
            let Turn::Wait(due) = rdma.next_turn() else { return Turn::Again };
            first = first.into_iter().chain(due).min();
        }
        Turn::Wait(first)
    }
}

impl Rdma<SimDevice, InWorld> {
    fn begin_turn(&mut self, now: Time) {
        let InWorld(drive) = &mut self.driver;
        drive.set_now(now);
        if drive.device().is_readable() {
            drive.readable_all();
        }
        self.read_notifications();
    }

    fn next_turn(&mut self) -> Turn {
        match self.next_action() {
            Next::Wait(due) if !self.has_work() => Turn::Wait(due.into_iter().chain(self.next_attempt()).min()),
            Next::Deliver | Next::Again | Next::Wait(_) => Turn::Again,
        }
    }
}

/// Adds something that takes effect later, after what was added before.
fn later<T>(node: &Node, queue: &mut VecDeque<(Time, T)>, what: T) {
    let at = node.now().after(node.random_time(SPREAD));
    let at = queue.back().map_or(at, |(last, _)| at.max(*last));
    queue.push_back((at, what));
}

/// Takes the next one that has taken effect.
fn due<T>(queue: &mut VecDeque<(Time, T)>, now: Time) -> Option<T> {
    queue.front().is_some_and(|(due, _)| *due <= now).then(|| queue.pop_front())?.map(|(_, what)| what)
}
