//! A link between two replicas.

use std::time::Duration;

/// A link between two replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// The number of the connection.
    pub(super) epoch: u64,
    pub(super) up: bool,
    /// The time before which no new connection succeeds.
    pub(super) closed_until: Duration,
    /// The time when the last write in each direction arrives.
    pub(super) written: [Duration; 2],
}

impl Link {
    pub(super) fn all(replicas: usize) -> Vec<Self> {
        vec![Link::default(); replicas * replicas]
    }

    /// Whether this connection exists.
    pub(super) fn is(&self, epoch: u64) -> bool {
        self.up && self.epoch == epoch
    }
}
