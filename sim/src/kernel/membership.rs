//! A membership of a multicast group.

use std::net::SocketAddr;

use cmid_proto::GroupKey;

use crate::fabric::timers::TimerKey;

/// One join that was not left.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    pub(super) addr: SocketAddr,
    pub(super) send_only: bool,
    /// Until the join is done.
    pub(super) pending: Option<TimerKey>,
    /// The library knows the group since it has read the event: only then can it take the QP off it.
    pub(super) read: bool,
}
