//! The data that the core stores for one membership in a multicast group.

use core::net::SocketAddr;

use crate::key::{GroupKey, IdKey};
use crate::time::Time;

/// A membership in a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) id: IdKey,
    pub(crate) addr: SocketAddr,
    pub(crate) phase: GroupPhase,
    /// Whether a leave waits for the application's acks.
    pub(crate) leaving: bool,
    /// The number of events delivered and not acked.
    pub(crate) owed: u32,
    /// The deadline of the join.
    pub(crate) deadline: Time,
    /// The next membership of the id.
    pub(crate) next: Option<GroupKey>,
}

/// The phase of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GroupPhase {
    Joining,
    Joined,
    /// The join failed or timed out, or the group was lost: it can only be left.
    Failed,
}
