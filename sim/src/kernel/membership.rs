//! A membership of a multicast group.

use std::net::SocketAddr;

use cmid_proto::GroupKey;

use crate::fabric::timers::TimerKey;

/// One membership, from the join to the leave.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    pub(super) addr: SocketAddr,
    pub(super) send_only: bool,
    /// The timer of a pending join.
    pub(super) pending: Option<TimerKey>,
    /// Set when the event is read: only then does the library know the group and detach the QP on leave.
    pub(super) read: bool,
}
