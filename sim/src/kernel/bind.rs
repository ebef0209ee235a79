//! `rdma_bind_addr` and `rdma_listen`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use cmid_proto::{Errno, PortSpace, Transport};

use crate::fabric::world::World;
use crate::index::IdNo;
use crate::kernel::address::{is_any, lacks_scope};
use crate::kernel::id::CmState;
use crate::kernel::ports::Owner;

impl World {
    /// `rdma_bind_addr`: afterwards the library knows the address, and for a specific address the device.
    pub(crate) fn bind(&mut self, no: IdNo, addr: SocketAddr) -> Result<(), Errno> {
        self.bind_kernel(no, addr, None)?;
        let id = self.id(no)?;
        id.query_addresses();
        id.verbs = id.device.is_some();
        Ok(())
    }

    /// The kernel's part (`rdma_bind_addr_dst`), for a bind or for a lookup of a destination. The kernel keeps the
    /// destination if no port is available. A destination of another family gets the family of the address, and its
    /// bytes are then interpreted in that family.
    pub(crate) fn bind_kernel(&mut self, no: IdNo, addr: SocketAddr, to: Option<SocketAddr>) -> Result<(), Errno> {
        let turn = self.next_turn();
        let id = self.ids.get_mut(&no).ok_or(Errno::EBADF)?;
        if id.state != CmState::Idle || lacks_scope(addr) {
            return Err(Errno::EINVAL);
        }
        let host = self.hosts.get_mut(id.host.0).ok_or(Errno::ENODEV)?;
        let ip = addr.ip();
        let specific = !is_any(ip);
        if specific {
            // A scope selects the interface (`cma_check_linklocal`).
            id.interface = host.interface_of_scope(addr).or(id.interface);
            // The interface of an earlier attempt is kept, even if the address is on another one.
            let interface = match id.interface {
                Some(interface) => interface,
                None => host.interface_of(ip).ok_or(Errno::EADDRNOTAVAIL)?,
            };
            id.interface = Some(interface);
            // The IPoIB port space requires an InfiniBand device (`cma_acquire_dev_by_src_ip`).
            if id.port_space == PortSpace::Ipoib {
                return Err(Errno::EINVAL);
            }
            // A mapped address has the GID of its IPv4 address (`cma_acquire_dev_by_src_ip`). It is sought on the
            // interface (`cma_validate_port`). An iWARP device has the GID of its interface, whatever the address.
            let has_gid = match host.transport {
                Transport::Iwarp => interface.has_device(),
                Transport::InfiniBand => {
                    host.rdma.contains(&ip.to_canonical()) && interface.device == Some(host.device_index(ip))
                }
            };
            if !has_gid || !host.has_device() {
                return Err(Errno::ENODEV);
            }
        }
        if let Some(to) = to {
            id.dst_ip6 = copied(addr, to, id.dst_ip6);
        }
        id.dst = to.or(id.dst).map(|to| read_as(addr, to, id.dst_ip6));
        let port = host.ports.take(id.port_space, addr.port(), id.options.owner(no, ip), &mut self.rng)?;
        id.state = CmState::AddrBound;
        id.device = specific.then_some(turn);
        id.own_link = specific.then_some(host.link_addr);
        id.port = Some(port);
        id.src = Some(with_port(addr, port));
        Ok(())
    }

    /// `rdma_listen`. The backlog is set before any check (`ucma_listen`).
    pub(crate) fn listen(&mut self, no: IdNo, backlog: i32) -> Result<(), Errno> {
        let most = self.config.max_backlog;
        let id = self.id(no)?;
        id.backlog = u32::try_from(backlog).ok().filter(|requested| (1..=most).contains(requested)).unwrap_or(most);
        match id.state {
            CmState::Idle => self.bind_kernel(no, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), None)?,
            CmState::AddrBound => {}
            CmState::AddrQuery
            | CmState::AddrResolved
            | CmState::RouteQuery
            | CmState::RouteResolved
            | CmState::Connect
            | CmState::Disconnect
            | CmState::Listen => return Err(Errno::EINVAL),
        }
        self.own_port(no)?;
        self.listen_on_devices(no)?;
        let id = self.id(no)?;
        id.state = CmState::Listen;
        id.query_addresses();
        // The library may read the device only here, because a failed lookup may have bound the id.
        id.verbs |= id.device.is_some();
        Ok(())
    }

    /// Listens on each device, for a listener without one (`cma_listen_on_all`). siw makes a socket per device, and restricts
    /// it to the device if the address is the wildcard: on a loopback address the second one fails (`siw_create_listen`).
    fn listen_on_devices(&mut self, no: IdNo) -> Result<(), Errno> {
        let id = self.id(no)?;
        let (host, on_loopback) = (id.host, id.src.is_some_and(|src| src.ip().is_loopback()));
        let several = self.hosts.get(host.0).is_some_and(|host| host.last_device_index() > 0);
        if on_loopback && several && self.is_iwarp(host) { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }

    /// Makes the port exclusive to a listener, permanently (`cma_bind_listen`).
    fn own_port(&mut self, no: IdNo) -> Result<(), Errno> {
        let id = self.ids.get_mut(&no).ok_or(Errno::EBADF)?;
        if !id.options.reuse_addr {
            return Ok(());
        }
        if let (Some(src), Some(port), Some(host)) = (id.src, id.port, self.hosts.get(id.host.0)) {
            let alone = Owner { reuse_addr: false, ..id.options.owner(no, src.ip()) };
            host.ports.check(id.port_space, port, alone)?;
        }
        id.options.reuse_addr = false;
        self.update_ports(no);
        Ok(())
    }

    /// Releases the port of an id that is destroyed.
    pub(crate) fn release_port(&mut self, no: IdNo) {
        let Some(id) = self.ids.get_mut(&no) else { return };
        if let (Some(port), Some(host)) = (id.port.take(), self.hosts.get_mut(id.host.0)) {
            host.ports.release(id.port_space, port, no);
        }
    }
}

/// Returns the bytes in the place of an IPv6 address after the kernel has copied `addr` there with the length of
/// `like`. The length of an IPv4 address covers half of an IPv6 address.
fn copied(like: SocketAddr, addr: SocketAddr, before: Ipv6Addr) -> Ipv6Addr {
    let bits = match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.ip().to_bits(),
    };
    let half = u128::from(u64::MAX);
    Ipv6Addr::from_bits(if like.is_ipv4() { bits & !half | before.to_bits() & half } else { bits })
}

/// Interprets the bytes of an address in the family of another one, because the kernel overwrites only the family. An
/// IPv4 address becomes the flow information of IPv6, and the reverse.
fn read_as(like: SocketAddr, addr: SocketAddr, ip6: Ipv6Addr) -> SocketAddr {
    match (like, addr) {
        (SocketAddr::V4(_), SocketAddr::V6(v6)) => {
            SocketAddrV4::new(Ipv4Addr::from_bits(v6.flowinfo()), v6.port()).into()
        }
        (SocketAddr::V6(_), SocketAddr::V4(v4)) => SocketAddrV6::new(ip6, v4.port(), v4.ip().to_bits(), 0).into(),
        (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => addr,
    }
}

/// The same address with another port; keeps an IPv6 scope.
pub(crate) fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}
