//! The server: sends each number back. It has three channels, as if each were that of a thread: one for its listener, and
//! two between which its connections move.

use std::time::Duration;

use cmid_proto::handshake::Incoming;
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Error, Event, IdKey, PortSpace, Time};
use cmid_sim::{Node, Program, SimDevice, Turn, turn};

use crate::link::{self, Connection, PORT};

/// The time between two moves.
const MOVES: Duration = Duration::from_millis(1500);

/// The time until the next attempt to listen, on a host without a device.
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    node: Node,
    drive: Drive<SimDevice>,
    /// The listener's, and two for connections. They cannot be opened on a host that has had no device.
    channels: Vec<ChannelKey>,
    listener: Option<IdKey>,
    /// Oldest first, those under way and at their end too.
    connections: Vec<Connection>,
    /// The number of connections so far.
    count: usize,
    listen_at: Time,
    move_at: Time,
}

impl Server {
    pub(crate) fn new(node: &Node) -> Self {
        let now = node.now();
        Server {
            node: node.clone(),
            drive: node.drive(),
            channels: Vec::new(),
            listener: None,
            connections: Vec::new(),
            count: 0,
            listen_at: now,
            move_at: now.after(MOVES),
        }
    }

    fn listen(&mut self) -> Result<(), Error> {
        while self.channels.len() < 3 {
            self.channels.push(self.drive.open_channel(Acks::OnDelivery)?);
        }
        let id = self.drive.create_id(self.channels.first().copied(), PortSpace::Tcp)?;
        let listens = self.drive.bind(id, self.node.addr(PORT)).and_then(|()| self.drive.listen(id, 16));
        match listens {
            Ok(()) => self.listener = Some(id),
            Err(_) => drop(self.drive.destroy(id, Time::NEVER)?),
        }
        listens
    }

    fn take(&mut self, event: Event) {
        let event = match Incoming::new(&mut self.drive, event) {
            Ok(incoming) => {
                // An error is that of a client which has gone.
                self.connections.extend(Connection::accept(&mut self.drive, incoming, &link::options(), link::attach));
                return;
            }
            Err(event) => event,
        };
        if Some(event.id) == self.listener && event.cm() == Some(CmEvent::DeviceRemoval) {
            self.listener = None;
            // It fails only if the id is gone.
            let _ = self.drive.destroy(event.id, Time::NEVER);
        } else if let Some(connection) = self.connections.iter_mut().find(|it| it.id() == event.id) {
            let id = event.id;
            // After an error the connection is over.
            if let Ok(Some(_)) = connection.handle(&mut self.drive, event, link::attach) {
                self.count += 1;
                self.end_older(id);
                self.move_to(id, self.channels.get(1 + self.count % 2).copied());
            }
        }
    }

    /// Ends the other connections of the same client: it has lost them.
    fn end_older(&mut self, id: IdKey) {
        let client = |drive: &Drive<SimDevice>, id| drive.peer_addr(id).map(|addr| addr.ip()).ok();
        let is_of = client(&self.drive, id);
        for older in self.connections.iter_mut().filter(|it| it.id() != id && !it.is_over()) {
            if is_of.is_some() && client(&self.drive, older.id()) == is_of {
                self.node.note(&format!("ends {}, which its client has lost", older.id()));
                let _ = older.cancel(&mut self.drive);
            }
        }
    }

    /// Moves a connection to another channel. It fails if the connection is about to end.
    fn move_to(&mut self, id: IdKey, to: Option<ChannelKey>) {
        let (Some(from), Some(to)) = (self.drive.core().channel(id), to) else { return };
        if self.drive.migrate(id, Some(to), Time::NEVER).is_ok() {
            self.node.note(&format!("has moved {id} from {from} to {to}, with its unread events"));
        }
    }

    /// Moves the oldest connection to the other one of the two channels.
    fn rebalance(&mut self) {
        let Some(id) = self.connections.iter_mut().find_map(|it| it.attached().is_some().then_some(it.id())) else {
            return;
        };
        let now_on = self.drive.core().channel(id);
        let other = self.channels.iter().skip(1).copied().find(|channel| Some(*channel) != now_on);
        self.move_to(id, other);
    }
}

impl Program for Server {
    fn turn(&mut self, now: Time) -> Turn {
        turn(&mut self.drive, now);
        for at in 0..self.channels.len() {
            while let Some(event) = self.channels.get(at).and_then(|channel| self.drive.next_event(*channel)) {
                self.take(event);
            }
        }
        for connection in &mut self.connections {
            while let Some(arrived) = link::poll(connection, &mut self.drive) {
                if let Ok(number) = arrived {
                    link::send(connection, number);
                }
            }
        }
        self.connections.retain(|connection| !connection.is_over());
        if self.move_at <= now {
            self.rebalance();
            self.move_at = now.after(MOVES);
        }
        if self.listener.is_none() && self.listen_at <= now && self.listen().is_err() {
            self.listen_at = now.after(AGAIN);
        }
        let listen_at = self.listener.is_none().then_some(self.listen_at.max(now));
        match self.drive.next_action().into() {
            Turn::Wait(due) => Turn::Wait(due.into_iter().chain(listen_at).chain([self.move_at]).min()),
            Turn::Again | Turn::Done => Turn::Again,
        }
    }
}
