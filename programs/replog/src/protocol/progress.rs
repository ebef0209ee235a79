//! The progress of replicas, as the leader records it.

use std::time::Duration;

use super::log::Index;
use super::room::Room;

/// The progress of a replica.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The next record to write.
    pub(super) next: Index,
    /// Up to this record the replica has stored the log.
    pub(super) matched: Index,
    /// The free space for frames; `None` while the leader may not write.
    pub(super) room: Option<Room>,
    /// The time of its last message.
    pub(super) seen: Option<Duration>,
}

impl Progress {
    pub(super) fn new(next: Index) -> Self {
        Progress { next, matched: 0, room: None, seen: None }
    }

    pub(super) fn disconnect(&mut self) {
        self.room = None;
    }
}
