//! The addresses and numbers of a program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use serde::{Deserialize, Serialize};

/// A port; 0 lets the kernel choose one.
pub type PortNo = u8;

/// The ports that a program may use, from [`Numbers::port`] on.
pub const PORTS: u16 = 8;

/// The QP numbers that a program may use, from [`Numbers::qp_num`] on.
pub const QP_NUMS: u32 = 0x100;

/// A kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ip {
    /// The address of side a.
    OfA,
    /// The address of side b.
    OfB,
    /// An address of another device.
    OfOther,
    /// The wildcard.
    Any,
    /// The loopback address, which the kernel treats as a wildcard.
    Loopback,
    /// An address of 0.0.0.0/8 that is not the wildcard.
    ThisNetwork,
    /// An address on an interface without an RDMA device.
    NoRdma,
    /// An address without a route.
    NoRoute,
    /// A multicast group.
    Group(u8),
    /// The broadcast address of the network of both sides.
    Broadcast,
    /// 255.255.255.255
    Everybody,
    /// An unused address on the interface without an RDMA device and without ARP.
    Silent,
    /// The IPv6 address of side a.
    OfA6,
    /// The IPv6 address of side b.
    OfB6,
    /// The wildcard of IPv6.
    Any6,
    /// The loopback address of IPv6.
    Loopback6,
    /// The address of side b, mapped into IPv6.
    Mapped,
    /// The link-local address of both sides, with its link.
    Link6,
    /// The same without the scope ID.
    NoLink6,
    /// An IPv6 address without a route.
    NoRoute6,
    /// An IPv6 multicast group.
    Group6(u8),
    /// A link-local IPv6 multicast group without a scope ID.
    LinkGroup6(u8),
}

impl Ip {
    /// The group of a number. Numbers from 4 on are IPv6 groups.
    #[must_use]
    pub const fn group(number: u8) -> Ip {
        if number < 4 { Ip::Group(number) } else { Ip::Group6(number) }
    }

    /// Whether it is an IPv6 address.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.resolve().is_ipv6()
    }

    /// Whether no single host answers a request to it: it is an address of many hosts, or unreachable from an IPv6
    /// address.
    #[must_use]
    pub const fn is_nobody(self) -> bool {
        let many = matches!(self, Ip::Group(_) | Ip::Broadcast | Ip::Everybody | Ip::Group6(_) | Ip::LinkGroup6(_));
        many || matches!(self, Ip::Any6 | Ip::Loopback6)
    }

    /// Whether it is valid on one link only.
    #[must_use]
    pub const fn is_of_link(self) -> bool {
        matches!(self, Ip::Link6 | Ip::NoLink6 | Ip::LinkGroup6(_))
    }

    fn resolve(self) -> IpAddr {
        match self {
            Ip::OfA => Ipv4Addr::new(10, 99, 0, 1).into(),
            Ip::OfB => Ipv4Addr::new(10, 99, 0, 2).into(),
            Ip::OfOther => Ipv4Addr::new(10, 98, 0, 1).into(),
            Ip::Any => Ipv4Addr::UNSPECIFIED.into(),
            Ip::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ip::ThisNetwork => Ipv4Addr::new(0, 1, 2, 3).into(),
            Ip::NoRdma => Ipv4Addr::new(172, 16, 0, 1).into(),
            Ip::NoRoute => Ipv4Addr::new(8, 8, 8, 8).into(),
            Ip::Group(number) => Ipv4Addr::new(239, 1, 1, number).into(),
            Ip::Broadcast => Ipv4Addr::new(10, 99, 0, 255).into(),
            Ip::Everybody => Ipv4Addr::BROADCAST.into(),
            Ip::Silent => Ipv4Addr::new(172, 16, 0, 9).into(),
            Ip::OfA6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).into(),
            Ip::OfB6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2).into(),
            Ip::Any6 => Ipv6Addr::UNSPECIFIED.into(),
            Ip::Loopback6 => Ipv6Addr::LOCALHOST.into(),
            Ip::Mapped => Ipv4Addr::new(10, 99, 0, 2).to_ipv6_mapped().into(),
            Ip::Link6 | Ip::NoLink6 => LINK_LOCAL.into(),
            Ip::NoRoute6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            Ip::Group6(number) => Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
            Ip::LinkGroup6(number) => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
        }
    }
}

/// The link-local address that Linux derives from the link address of the VM's `dummy0`.
pub const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0x9901);

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint(pub Ip, pub PortNo);

/// The host's numbers that a run uses, so that several runs are possible at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Its first port.
    pub port: u16,
    /// Its first QP number. All existing connections of a host need different ones.
    pub qp_num: u32,
    /// The index of the interface with [`LINK_LOCAL`].
    pub link: u32,
}

impl Endpoint {
    /// Returns the address.
    #[must_use]
    pub fn resolve(self, numbers: Numbers) -> SocketAddr {
        let port = if self.1 == 0 { 0 } else { numbers.port + u16::from(self.1) };
        match self.0.resolve() {
            IpAddr::V6(ip) if self.0 == Ip::Link6 => SocketAddrV6::new(ip, port, 0, numbers.link).into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => SocketAddr::new(ip, port),
        }
    }
}
