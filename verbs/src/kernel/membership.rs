//! A membership of an id in a multicast group.

use core::net::{IpAddr, SocketAddr};

use cmid_proto::GroupKey;

use crate::kernel::qp::Group;

/// One multicast group that an id is in.
pub(crate) struct Membership {
    pub(super) key: GroupKey,
    pub(super) addr: SocketAddr,
    /// The kernel's number of the membership.
    pub(super) handle: u32,
    pub(super) send_only: bool,
    /// Whether its MULTICAST_JOIN or MULTICAST_ERROR is not read yet.
    pub(super) is_pending: bool,
    /// The group that the QP is attached to.
    pub(super) attached: Option<Group>,
}

impl Membership {
    /// Whether a group has the GID of its address: the low 28 bits of an IPv4 address, or the low 80 bits of an IPv6
    /// address. The rest depends on the link (`cma_set_mgid`, `cma_iboe_set_mgid`).
    pub(super) fn is_of(&self, group: Group) -> bool {
        let gid = group.gid;
        match self.addr.ip() {
            IpAddr::V4(ip) => {
                let [first, rest @ ..] = ip.octets();
                gid[12] & 0x0f == first & 0x0f && gid[13..] == rest
            }
            IpAddr::V6(ip) => gid[6..] == ip.octets()[6..],
        }
    }
}
