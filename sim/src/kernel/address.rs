//! The RDMA CM's classification of IP addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The kernel's "any" test: it treats the loopback addresses as wildcards (`cma_any_addr`).
pub(crate) fn is_any(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback()
}

/// The wildcard of the same family with port 0; keeps an IPv6 scope (`cma_bind_addr`).
pub(crate) fn wildcard_like(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(v6) => SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, v6.scope_id()).into(),
    }
}

/// The loopback address of the same family.
pub(crate) fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

/// Whether an IPv6 address, of a host or of a group, is valid on one link only (`IPV6_ADDR_LINKLOCAL`).
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.segments()[0] & 0xff0f == 0xff02,
    }
}

/// Whether this is a link-local IPv6 address without a scope (`cma_check_linklocal`).
pub(crate) fn lacks_scope(addr: SocketAddr) -> bool {
    matches!(addr, SocketAddr::V6(v6) if v6.scope_id() == 0) && is_link_local(addr.ip())
}

/// The same address without a scope: messages do not carry it (`cma_save_ip6_info`).
pub(crate) fn without_scope(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port())
}

/// Whether this is the broadcast address of an IPv4 /24.
pub(crate) fn is_subnet_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.octets()[3] == 255 && !v4.is_broadcast() && !v4.is_multicast())
}

/// Whether this is a multicast group or 255.255.255.255: the kernel sends such packets without a route
/// (`ip_route_output_key_hash_rcu`).
pub(crate) fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}

/// A network: all addresses of one /24 (IPv4) or /64 (IPv6). Each network of a host is one network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subnet {
    V4([u8; 3]),
    V6([u16; 4]),
}

impl Subnet {
    pub(crate) fn of(ip: IpAddr) -> Subnet {
        match ip {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Subnet::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Subnet::V6([a, b, c, d])
            }
        }
    }
}

/// A network interface of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) subnet: Subnet,
    /// The position of its RDMA device. All interfaces with one device are one link.
    pub(crate) device: Option<u8>,
    /// Whether link addresses of neighbours must be resolved (no `IFF_NOARP`).
    pub(crate) arp: bool,
}

impl Interface {
    pub(crate) fn on_device(ip: IpAddr, device: u8) -> Interface {
        Interface { device: Some(device), ..Interface::plain(ip) }
    }

    pub(crate) fn plain(ip: IpAddr) -> Interface {
        Interface { subnet: Subnet::of(ip), device: None, arp: true }
    }

    pub(crate) fn without_arp(ip: IpAddr) -> Interface {
        Interface { arp: false, ..Interface::plain(ip) }
    }

    pub(crate) fn has_device(self) -> bool {
        self.device.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_24_and_64_bits_wide() {
        let net = |text: &str| Subnet::of(text.parse().unwrap());
        assert_eq!(net("10.0.0.1"), net("10.0.0.200"));
        assert_ne!(net("10.0.0.1"), net("10.0.1.1"));
        assert_eq!(net("fd00:0:0:1::1"), net("fd00:0:0:1:ffff::2"));
        assert_ne!(net("fd00:0:0:1::1"), net("fd00:0:0:2::1"));
    }
}
