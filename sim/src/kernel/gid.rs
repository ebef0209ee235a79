//! Global identifiers: those of a RoCEv2 device, and of a group, derive from IP addresses (`rdma_ip2gid`,
//! `cma_iboe_set_mgid`).

use std::net::{IpAddr, Ipv6Addr};

use cmid_proto::datapath::{AhAttr, GlobalRoute};

/// The 128-bit identifier of a port or a group.
pub(crate) type Gid = [u8; 16];

/// The port of every device; there is only one.
pub(crate) const PORT: u8 = 1;

/// `IPV6_DEFAULT_HOPLIMIT`, which the RDMA CM uses for IPv4 too.
pub(crate) const HOP_LIMIT: u8 = 64;

/// The GID of an IP address; IPv4 addresses are mapped.
pub(crate) fn gid_of(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The IP address of a GID.
pub(crate) fn ip_of(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// The path to an address or a group, from the local GID with this index.
pub(crate) fn path(sgid_index: u8, to: IpAddr) -> AhAttr {
    let route = GlobalRoute { dgid: gid_of(to), sgid_index, hop_limit: HOP_LIMIT, ..GlobalRoute::default() };
    AhAttr { grh: Some(route), port_num: PORT, ..AhAttr::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_gids_are_the_same_thing() {
        for text in ["10.0.0.1", "239.1.2.3", "fd00::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(ip_of(gid_of(ip)), ip);
        }
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
        assert_eq!(gid_of("239.1.2.3".parse().unwrap()), mapped);
    }
}
