//! A host: its addresses, its port tables, and its device's tables of live connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cmid_proto::Transport;

use crate::data::fault::MemoryFaults;
use crate::fabric::table::Table;
use crate::index::{CommId, HostNo, IdNo};
use crate::kernel::address::{Interface, Subnet, is_link_local};
use crate::kernel::ports::Ports;

/// The indices of the loopback interface and of the interface of the RDMA device.
const LOOPBACK: u32 = 1;
const LINK: u32 = 2;

/// Whether devices that a host has got at once are present. Clones are of the same devices: what belongs to them sees their
/// removal without the lock of the fabric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removal(Arc<AtomicBool>);

impl Removal {
    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
pub(crate) struct HostState {
    /// Addresses on interfaces with an RDMA device.
    pub(crate) rdma: Vec<IpAddr>,
    /// Addresses on interfaces without an RDMA device.
    pub(crate) plain: Vec<IpAddr>,
    /// The addresses of `rdma` that are on another device than the first, with its position.
    pub(crate) on_later_devices: BTreeMap<IpAddr, u8>,
    /// The addresses of `plain` on interfaces without ARP.
    pub(crate) noarp: BTreeSet<IpAddr>,
    pub(crate) link_up: bool,
    /// Its link address. The last bit says which interface of its bond is active.
    pub(crate) link_addr: u64,
    /// Whether something has arrived for a program since the world last took its news: an event or a completion.
    pub(crate) has_news: bool,
    /// The transport of its RDMA device.
    pub(crate) transport: Transport,
    /// The removal of its RDMA devices, or of the last ones.
    pub(crate) removal: Removal,
    /// The number of devices it has had.
    pub(crate) incarnation: u32,
    /// Injected faults of memory calls.
    pub(crate) faults: MemoryFaults,
    /// The injected error of the next join of a multicast group.
    pub(crate) refused_join: Option<i32>,
    pub(crate) ports: Ports,
    /// Addresses with a cached link address.
    pub(crate) neighbours: BTreeSet<IpAddr>,
    /// Connections by the peer's host and its communication id.
    pub(crate) remote_ids: Table<(HostNo, CommId), IdNo>,
    /// Connections by the peer's device and QP number, each of which may be in use once at a time.
    pub(crate) remote_qps: Table<(HostNo, u8, u32), IdNo>,
    pub(crate) next_qp_num: u32,
    /// The number of devices that its process has opened, for the log.
    pub(crate) opened: u32,
}

impl HostState {
    pub(crate) fn new(addresses: &[IpAddr]) -> Self {
        HostState {
            rdma: addresses.to_vec(),
            link_up: true,
            // Far from the numbers that programs without QPs usually choose.
            next_qp_num: 0x10_0000,
            ..HostState::default()
        }
    }

    /// Whether the host currently has an RDMA device.
    pub(crate) fn has_device(&self) -> bool {
        !self.removal.has_happened() && !self.rdma.is_empty()
    }

    /// The position of the device of an address, which may be mapped.
    pub(crate) fn device_index(&self, ip: IpAddr) -> u8 {
        self.on_later_devices.get(&ip.to_canonical()).copied().unwrap_or(0)
    }

    /// The position of the last device.
    pub(crate) fn last_device_index(&self) -> u8 {
        self.on_later_devices.values().copied().max().unwrap_or(0)
    }

    /// Removes or adds the devices; false if there is no change.
    pub(crate) fn set_device(&mut self, present: bool) -> bool {
        let changed = self.removal.has_happened() == present;
        if changed && present {
            self.incarnation += 1;
            self.removal = Removal::default();
        }
        self.removal.0.store(!present, Ordering::Release);
        changed
    }

    /// The interface of one of the host's own addresses.
    pub(crate) fn interface_of(&self, ip: IpAddr) -> Option<Interface> {
        if self.rdma.contains(&ip) {
            Some(Interface::on_device(ip, self.device_index(ip)))
        } else if self.noarp.contains(&ip) {
            Some(Interface::without_arp(ip))
        } else if self.plain.contains(&ip) {
            Some(Interface::plain(ip))
        } else {
            None
        }
    }

    /// The interface that the scope of a link-local address names. One without a device is in place of the loopback
    /// interface, and of one that there is not: neither can be bound, nor leads to another host.
    pub(crate) fn interface_of_scope(&self, addr: SocketAddr) -> Option<Interface> {
        let ip = addr.ip();
        let SocketAddr::V6(v6) = addr else { return None };
        if !is_link_local(ip) || v6.scope_id() == 0 {
            return None;
        }
        let on = |own: &[IpAddr]| source_among(own.iter(), ip).or(own.first().copied());
        let own = match v6.scope_id() {
            LINK => on(&self.rdma),
            scope if scope == LINK + 1 => on(&self.plain),
            _ => None,
        };
        own.and_then(|own| self.interface_of(own)).or(Some(Interface::without_arp(Ipv6Addr::LOCALHOST.into())))
    }

    /// The address with the scope of the interface of `local`, the local address of the id, if it needs one. The devices of
    /// `cmid-verbs` find it where the kernel has none.
    pub(crate) fn scoped(&self, addr: SocketAddr, local: Option<SocketAddr>) -> SocketAddr {
        let (SocketAddr::V6(mut v6), Some(SocketAddr::V6(local))) = (addr, local) else { return addr };
        if v6.scope_id() == 0 && v6.ip().is_unicast_link_local() {
            let found = match self.interface_of(IpAddr::V6(*local.ip())) {
                _ if local.scope_id() != 0 => local.scope_id(),
                _ if local.ip().is_loopback() => LOOPBACK,
                Some(interface) if interface.has_device() => LINK,
                Some(_) => LINK + 1,
                None => 0,
            };
            v6.set_scope_id(found);
        }
        v6.into()
    }

    /// The host's source address for a destination: one of the same network if possible, otherwise any of the family,
    /// as through a router. IPv4 takes the first (`fib_add_ifaddr`), IPv6 the last (`ipv6_link_dev_addr`). A
    /// link-local address is taken only if its scope suffices (RFC 6724, rule 2).
    pub(crate) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        source_among(self.rdma.iter().chain(&self.plain), dst)
    }

    /// The host's source address for a group on an interface. For IPv4 it is the first address of the interface
    /// (`inet_select_addr`). All addresses of the RDMA device, of both families, are on one interface here.
    pub(crate) fn source_on(&self, interface: Interface, group: IpAddr) -> Option<IpAddr> {
        let on = |ip: &&IpAddr| self.interface_of(**ip) == Some(interface);
        match (interface.has_device(), group) {
            (false, IpAddr::V4(_) | IpAddr::V6(_)) => source_among(self.plain.iter().filter(on), group),
            (true, IpAddr::V4(_)) => {
                source_among(self.rdma.iter().filter(on), group).or_else(|| source_among(self.rdma.iter(), group))
            }
            (true, IpAddr::V6(_)) => source_among(self.rdma.iter(), group),
        }
    }
}

fn source_among<'a>(own: impl DoubleEndedIterator<Item = &'a IpAddr> + Clone, dst: IpAddr) -> Option<IpAddr> {
    let near = |ip: &&IpAddr| Subnet::of(**ip) == Subnet::of(dst);
    let scope = |ip: &&IpAddr| is_link_local(**ip) == is_link_local(dst);
    let own = || own.clone().filter(|ip| ip.is_ipv4() == dst.is_ipv4());
    let found = match dst {
        IpAddr::V4(_) => own().find(near).or_else(|| own().next()),
        IpAddr::V6(_) => own().rfind(near).or_else(|| own().rfind(scope)).or_else(|| own().next_back()),
    };
    found.copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_source_is_preferred_and_a_far_one_of_the_same_family_will_do() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut host = HostState::new(&[ip("10.0.0.1"), ip("10.1.0.1"), ip("fd00::1"), ip("fd00::2"), ip("fe80::1")]);
        host.plain.push(ip("172.16.0.1"));
        assert_eq!(host.source_for(ip("10.1.0.9")), Some(ip("10.1.0.1")));
        assert_eq!(host.source_for(ip("10.9.0.9")), Some(ip("10.0.0.1")));
        assert_eq!(host.source_for(ip("172.16.0.9")), Some(ip("172.16.0.1")));
        for (dst, src) in
            [("fd00::9", "fd00::2"), ("fd09::9", "fd00::2"), ("ff0e::9", "fd00::2"), ("ff02::9", "fe80::1")]
        {
            assert_eq!(host.source_for(ip(dst)), Some(ip(src)), "{dst}");
        }
        assert_eq!(HostState::new(&[ip("10.0.0.1")]).source_for(ip("fd00::1")), None);
    }
}
