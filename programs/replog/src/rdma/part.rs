//! The division of a replica's connections between its reactors.

use crate::protocol::ReplicaId;

/// One of the reactors of a replica. The first one has the log and the clients, and listens. The others own the
/// connections, distributed by the number of the peer. A single reactor owns all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of the reactor, from 0 on.
    pub(crate) reactor: usize,
    /// The number of reactors, at least 1.
    pub(crate) reactors: usize,
}

impl Part {
    /// The only reactor.
    pub(crate) const ALL: Part = Part { reactor: 0, reactors: 1 };

    /// Whether this reactor listens.
    pub(crate) fn listens(self) -> bool {
        self.reactor == 0
    }

    /// Whether this reactor owns the connection with a peer.
    pub(crate) fn owns(self, peer: ReplicaId) -> bool {
        self.reactor == self.owner(peer)
    }

    /// Returns the number of the reactor that owns the connection with a peer.
    pub(crate) fn owner(self, peer: ReplicaId) -> usize {
        match self.reactors {
            1 => 0,
            reactors => 1 + peer % (reactors - 1),
        }
    }
}
