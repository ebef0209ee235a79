//! What a replica needs of the connections with its peers.

use std::time::Duration;

use mio::event::Event;

use crate::protocol::{Frame, Message, ReplicaId};

/// What happens on the connections.
#[derive(Debug)]
pub enum LinkEvent {
    /// A connection with a peer is established.
    Connected(ReplicaId),
    /// It has ended.
    Disconnected(ReplicaId),
    /// A message has come.
    Message(ReplicaId, Message),
    /// A peer has written a frame into the memory of this replica.
    Frame(ReplicaId, Frame),
}

/// The version of the protocols between replicas and with clients. Peers of another version are refused.
pub const VERSION: u8 = 1;

/// Connections with all peers. A connection that fails is made again.
///
/// An action concerns the connection that the last event of [`Links::next_event`] was about. If that connection has
/// ended, the action does nothing, also if there is a new one.
pub trait Links {
    /// Prepares the poll. Returns its timeout: at most `at_most`.
    fn before_poll(&mut self, at_most: Duration) -> Duration;

    /// Takes an event of the poll. Returns false if it is not of a connection.
    fn handle(&mut self, event: &Event) -> bool;

    /// Does the work after a poll.
    ///
    /// # Errors
    /// One that the user has to remove: in one line, with what to do.
    fn turn(&mut self) -> anyhow::Result<()>;

    /// Returns what has happened since.
    fn next_event(&mut self) -> Option<LinkEvent>;

    /// Sends a message, if there is a connection and room.
    fn send(&mut self, to: ReplicaId, message: Message);

    /// Writes a frame into the memory that the peer has granted. If that fails, the connection ends.
    fn write(&mut self, to: ReplicaId, offset: u32, frame: Vec<u8>);

    /// Permits a peer to write into the region of its connection.
    fn grant(&mut self, to: ReplicaId);

    /// Revokes the right to write of all peers. A connection for which that fails ends: nothing is written after this.
    fn fence(&mut self);
}
