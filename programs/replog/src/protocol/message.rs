//! The messages between replicas.

use super::log::{Index, Position, Record, Term};

/// A message of a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A candidate requests a vote.
    RequestVote {
        /// Its term.
        term: Term,
        /// The end of its log.
        last: Position,
    },
    /// The answer to a request for a vote.
    Vote {
        /// The term of the voter.
        term: Term,
        /// Whether the vote is granted.
        granted: bool,
    },
    /// A leader is alive.
    Heartbeat {
        /// Its term.
        term: Term,
        /// All records up to this one are committed.
        commit: Index,
        /// Whether the leader may write into the memory of the receiver. If false, it requests the right.
        may_write: bool,
    },
    /// The leader may write. On the wire the address and key of the memory follow.
    Granted {
        /// The term of the replica.
        term: Term,
        /// The end of its log.
        last: Index,
    },
    /// Records are stored.
    Stored {
        /// The term of the replica.
        term: Term,
        /// Up to this record the replica has stored the log of the leader.
        index: Index,
        /// The number of frames of the grant that it has read.
        frames: u64,
    },
    /// A frame does not follow the end of the log.
    Mismatch {
        /// The term of the replica.
        term: Term,
        /// The logs may agree up to this record, and do not beyond it.
        index: Index,
        /// The number of frames of the grant that it has read.
        frames: u64,
    },
}

impl Message {
    /// Returns the term of the sender.
    #[must_use]
    pub fn term(&self) -> Term {
        match *self {
            Message::RequestVote { term, .. }
            | Message::Vote { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::Granted { term, .. }
            | Message::Stored { term, .. }
            | Message::Mismatch { term, .. } => term,
        }
    }
}

/// Records that a leader writes into the memory of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The term of the leader.
    pub term: Term,
    /// The record before the first one.
    pub previous: Position,
    /// All records up to this one are committed.
    pub commit: Index,
    /// The records.
    pub records: Vec<Record>,
}
