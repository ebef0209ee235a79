//! What a leader knows of each replica.

use std::time::Duration;

use super::log::Index;
use super::room::Room;

/// What a leader knows of a replica.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The next record to write.
    pub(super) next: Index,
    /// Up to this record the replica has stored the log.
    pub(super) matched: Index,
    /// Where the next frame goes; `None` while the leader may not write.
    pub(super) room: Option<Room>,
    /// When it last sent something.
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
