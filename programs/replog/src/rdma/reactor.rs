//! A reactor that owns connections: a thread with a mio loop and a driver. It executes the commands of the reactor of
//! the log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use anyhow::Result;
use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::handshake::ReleasedIncoming;
use mio::{Events, Poll, Token, Waker};

use super::part::Part;
use super::{Driver, Rdma};
use crate::links::{LinkEvent, Links as _, Polled as _};
use crate::protocol::{Message, ReplicaId};

/// The token of the waker of the loop, for commands.
const COMMANDS: Token = Token(0);

/// The maximum time of a poll. Commands, events and deadlines end it earlier.
const TURN: Duration = Duration::from_secs(1);

/// A command of the reactor of the log. Commands are executed in order.
pub(crate) enum Command<H> {
    /// Accept a peer, with the request that the reactor of the log has received.
    Adopt(ReplicaId, ReleasedIncoming<H>),
    /// Execute an action on the connection with this number with a peer. No effect if the connection does not exist.
    Act(ReplicaId, u64, Act),
    /// Revoke the right of all peers to write, then report it.
    Fence(Sender<()>),
}

/// An action on a connection, as in [`Links`](crate::links::Links).
pub(crate) enum Act {
    Send(Message),
    Write(u32, Vec<u8>),
    Grant,
}

/// The arguments of a reactor.
pub(super) struct Start<D: DataPath> {
    pub(super) device: D,
    pub(super) id: ReplicaId,
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) part: Part,
    pub(super) commands: Receiver<Command<D::Handle>>,
    /// The events of the connections, or the error that ends the reactor.
    pub(super) events: Sender<Result<LinkEvent>>,
    /// Wakes the reactor of the log.
    pub(super) log: Arc<Waker>,
}

/// Runs until `commands` is closed. Sends the waker of this reactor to `started`.
pub(super) fn run<D: DataPath>(start: Start<D>, started: &Sender<Result<Waker>>) {
    let Start { device, id, addrs, part, commands, events, log } = start;
    let opened = open(device, id, &addrs, part).map(|(poll, waker, rdma)| {
        let _ = started.send(Ok(waker));
        (poll, rdma)
    });
    let (mut poll, mut rdma) = match opened {
        Ok(opened) => opened,
        Err(error) => return drop(started.send(Err(error))),
    };
    // The receiver has gone if the replica ends.
    if let Err(error) = react(&mut poll, &mut rdma, &commands, &events, &log) {
        let _ = events.send(Err(error));
        let _ = log.wake();
    }
}

fn open<D: DataPath>(device: D, id: ReplicaId, addrs: &[SocketAddr], part: Part) -> Result<(Poll, Waker, Rdma<D>)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), COMMANDS)?;
    let rdma = Rdma::with_part(device, poll.registry(), id, addrs, part)?;
    Ok((poll, waker, rdma))
}

fn react<D: DataPath>(
    poll: &mut Poll,
    rdma: &mut Rdma<D>,
    commands: &Receiver<Command<D::Handle>>,
    events: &Sender<Result<LinkEvent>>,
    log: &Waker,
) -> Result<()> {
    let mut polled = Events::with_capacity(256);
    loop {
        let timeout = rdma.before_poll(TURN);
        match poll.poll(&mut polled, Some(timeout)) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in polled.iter().filter(|event| event.token() != COMMANDS) {
            rdma.handle(event);
        }
        loop {
            match commands.try_recv() {
                Ok(command) => rdma.perform(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        rdma.turn()?;
        let mut has_events = false;
        while let Some(event) = rdma.next_event() {
            has_events = true;
            if events.send(Ok(event)).is_err() {
                return Ok(());
            }
        }
        if has_events {
            log.wake()?;
        }
    }
}

impl<D: DataPath, R: Driver<D>> Rdma<D, R> {
    pub(crate) fn act(&mut self, to: ReplicaId, act: Act) {
        match act {
            Act::Send(message) => self.send(to, message),
            Act::Write(offset, frame) => self.write(to, offset, frame),
            Act::Grant => self.grant(to),
        }
    }

    pub(crate) fn perform(&mut self, command: Command<D::Handle>) {
        match command {
            Command::Adopt(peer, request) => self.adopt(peer, request),
            Command::Act(to, connection, act) => {
                self.peers[to].current = connection;
                self.act(to, act);
            }
            Command::Fence(done) => {
                self.fence();
                // The receiver has gone if the replica ends.
                let _ = done.send(());
            }
        }
    }
}
