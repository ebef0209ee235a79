//! Connections on other reactors: the side of the reactor that has the log.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use cmid_mio::proto::datapath::DataPath;
use mio::{Registry, Waker};

use super::Rdma;
use super::part::Part;
use super::reactor::{Act, Command, Start, run};
use crate::links::{LinkEvent, Links, Polled};
use crate::protocol::{Message, ReplicaId};

/// Another reactor.
struct Reactor<D: DataPath> {
    commands: Sender<Command<D::Handle>>,
    waker: Waker,
    /// Whether it got commands since it was last woken.
    has_commands: bool,
    /// Whether it accepts no commands any more.
    has_ended: bool,
    thread: JoinHandle<()>,
}

impl<D: DataPath> Reactor<D> {
    fn command(&mut self, command: Command<D::Handle>) {
        self.has_ended |= self.commands.send(command).is_err();
        self.has_commands = true;
    }
}

/// The connections of a replica, on any number of reactors.
pub struct Reactors<D: DataPath> {
    /// The listener; with a single reactor also the connections.
    own: Rdma<D>,
    /// The other reactors, from number 1 on.
    others: Vec<Reactor<D>>,
    events: Receiver<Result<LinkEvent>>,
    happened: VecDeque<LinkEvent>,
    /// The number of the last connection with each peer that [`Links::next_event`] has returned.
    current: Vec<u64>,
}

impl<D: DataPath> std::fmt::Debug for Reactors<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactors").field("own", &self.own).field("others", &self.others.len()).finish_non_exhaustive()
    }
}

impl<D: DataPath + 'static> Reactors<D> {
    /// As [`Rdma::new`]. With several reactors the connections are on other threads. `waker` ends the poll of the loop
    /// that `registry` belongs to.
    ///
    /// # Errors
    /// The error text is one line with a remedy.
    pub fn new(
        device: D,
        registry: &Registry,
        waker: &Arc<Waker>,
        id: ReplicaId,
        addrs: &[SocketAddr],
        reactors: usize,
    ) -> Result<Self> {
        let part = |reactor| Part { reactor, reactors };
        let (sender, events) = channel();
        let mut others = Vec::new();
        for reactor in 1..reactors {
            let (commands, receiver) = channel();
            let (device, addrs, part, events) = (device.sibling(), addrs.to_vec(), part(reactor), sender.clone());
            let start = Start { device, id, addrs, part, commands: receiver, events, log: Arc::clone(waker) };
            let (started, is_started) = channel();
            let thread = std::thread::Builder::new().name(format!("reactor {reactor}"));
            let thread = thread.spawn(move || run(start, &started))?;
            let waker = is_started.recv().context("a reactor has ended")??;
            others.push(Reactor { commands, waker, has_commands: false, has_ended: false, thread });
        }
        let own = Rdma::with_part(device, registry, id, addrs, part(0))?;
        let current = vec![0; addrs.len()];
        Ok(Reactors { own, others, events, happened: VecDeque::new(), current })
    }
}

impl<D: DataPath> Reactors<D> {
    fn owner(&mut self, peer: ReplicaId) -> Option<&mut Reactor<D>> {
        let reactor = self.own.part.owner(peer);
        // The first one is `own`.
        self.others.get_mut(reactor.checked_sub(1)?)
    }

    fn act(&mut self, to: ReplicaId, act: Act) {
        let connection = self.current[to];
        match self.owner(to) {
            Some(owner) => owner.command(Command::Act(to, connection, act)),
            None => self.own.act(to, act),
        }
    }

    /// Wakes the reactors that have commands.
    fn wake(&mut self) {
        for reactor in &mut self.others {
            if std::mem::take(&mut reactor.has_commands) {
                reactor.has_ended |= reactor.waker.wake().is_err();
            }
        }
    }
}

impl<D: DataPath> Polled for Reactors<D> {
    fn before_poll(&mut self, at_most: Duration) -> Duration {
        self.wake();
        let at_most = if self.happened.is_empty() { at_most } else { Duration::ZERO };
        self.own.before_poll(at_most)
    }

    fn handle(&mut self, event: &mio::event::Event) -> bool {
        self.own.handle(event)
    }
}

impl<D: DataPath> Links for Reactors<D> {
    fn turn(&mut self) -> Result<()> {
        self.own.turn()?;
        for (peer, request) in self.own.take_requests() {
            if let Some(owner) = self.owner(peer) {
                owner.command(Command::Adopt(peer, request));
            }
        }
        for event in self.events.try_iter() {
            self.happened.push_back(event?);
        }
        // A reactor that ends with an error has sent the error.
        if self.others.iter().any(|reactor| reactor.has_ended) {
            bail!("a reactor has ended: start the replica again");
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        let Some(event) = self.happened.pop_front() else { return self.own.next_event() };
        if let LinkEvent::Connected(peer) = event {
            self.current[peer] += 1;
        }
        Some(event)
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        self.act(to, Act::Send(message));
    }

    fn write(&mut self, to: ReplicaId, offset: u32, frame: Vec<u8>) {
        self.act(to, Act::Write(offset, frame));
    }

    fn grant(&mut self, to: ReplicaId) {
        self.act(to, Act::Grant);
    }

    /// Waits until all reactors have fenced, so later actions follow the fence on each of them.
    fn fence(&mut self) {
        self.own.fence();
        let (done, is_done) = channel();
        for reactor in &mut self.others {
            reactor.command(Command::Fence(done.clone()));
        }
        drop(done);
        self.wake();
        // A reactor that has ended has no connections.
        is_done.iter().for_each(drop);
    }
}

impl<D: DataPath> Drop for Reactors<D> {
    fn drop(&mut self) {
        for Reactor { commands, waker, thread, .. } in self.others.drain(..) {
            // The thread ends with its queue.
            drop(commands);
            let _ = waker.wake();
            let _ = thread.join();
        }
    }
}
