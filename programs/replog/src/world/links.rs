//! The connections of a replica in a world: those of the program, on the simulated device.

use std::io;
use std::net::SocketAddr;

use anyhow::Result;
use cmid_mio::proto::{Drive, Limits, Next, Time};
use cmid_mio::sim::{Cq, Node, SimDevice, Turn};

use crate::protocol::ReplicaId;
use crate::rdma::{Driver, Memory, Rdma};

/// Small, so that leaders often reach its end.
pub(super) const MEMORY: Memory = Memory { region: 400, frames: 4, messages: 8, frame: 120 };

/// The driver of a program, which has no poll.
pub(super) struct InWorld(Drive<SimDevice>);

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

impl Rdma<SimDevice, InWorld> {
    /// Listens, and starts to connect.
    pub(super) fn in_world(node: &Node, id: ReplicaId, addrs: &[SocketAddr]) -> Result<Self> {
        let mut drive = Drive::new(node.device(), Limits::default());
        drive.set_now(node.now());
        let random = fastrand::Rng::with_seed(node.random(u64::MAX));
        Rdma::on(InWorld(drive), id, addrs, MEMORY, random)
    }

    /// Looks what has happened, before a turn.
    pub(super) fn begin_turn(&mut self, now: Time) {
        let InWorld(drive) = &mut self.driver;
        drive.set_now(now);
        if drive.device().is_readable() {
            drive.readable_all();
        }
        self.read_notifications();
    }

    /// Returns when the next turn is due.
    pub(super) fn next_turn(&mut self) -> Turn {
        match self.next_action() {
            Next::Wait(due) if !self.has_work() => Turn::Wait(due.into_iter().chain(self.next_attempt()).min()),
            Next::Deliver | Next::Again | Next::Wait(_) => Turn::Again,
        }
    }
}
