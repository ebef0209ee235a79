//! The interface between a replica and its connections with the peers.

use std::time::Duration;

use mio::event::Event;

use crate::protocol::{Frame, Message, ReplicaId};

/// An event of a connection.
#[derive(Debug)]
pub enum LinkEvent {
    /// A connection with a peer is established.
    Connected(ReplicaId),
    /// A connection has ended.
    Disconnected(ReplicaId),
    /// A message has arrived.
    Message(ReplicaId, Message),
    /// A peer has written a frame into the memory of this replica.
    Frame(ReplicaId, Frame),
}

/// The version of the protocols between replicas and with clients. Peers of another version are rejected.
pub const VERSION: u8 = 1;

/// Connections with all peers. After a failure a connection is established again.
///
/// An action concerns the connection of the last event of that peer from [`Links::next_event`]. If that connection has
/// ended, the action has no effect, even if there is a new connection.
pub trait Links {
    /// Does the work after a poll.
    ///
    /// # Errors
    /// An error that the user has to remove: one line with a remedy.
    fn turn(&mut self) -> anyhow::Result<()>;

    /// Returns the next event.
    fn next_event(&mut self) -> Option<LinkEvent>;

    /// Sends a message. Drops it if there is no connection or no room.
    fn send(&mut self, to: ReplicaId, message: Message);

    /// Writes a frame into the memory that the peer has granted. If that fails, the connection ends.
    fn write(&mut self, to: ReplicaId, offset: u32, frame: Vec<u8>);

    /// Permits a peer to write into the region of its connection.
    fn grant(&mut self, to: ReplicaId);

    /// Revokes the right of all peers to write. If that fails for a connection, the connection ends. No peer writes
    /// after the return.
    fn fence(&mut self);
}

/// Connections whose events a mio poll reports.
pub trait Polled: Links {
    /// Completes the work before a poll. Returns the timeout of the poll, at most `at_most`.
    fn before_poll(&mut self, at_most: Duration) -> Duration;

    /// Handles an event of the poll. Returns false if it is not an event of a connection.
    fn handle(&mut self, event: &Event) -> bool;
}
