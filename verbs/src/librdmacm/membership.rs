//! A multicast group that an id is in.

use core::net::SocketAddr;

use cmid_proto::GroupKey;

use crate::kernel::Group;

/// One membership of an id.
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    pub(crate) addr: SocketAddr,
    pub(crate) send_only: bool,
    /// The group that librdmacm attached the id's QP to when it read MULTICAST_JOIN.
    pub(crate) attached: Option<Group>,
}
