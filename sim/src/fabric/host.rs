//! A host: its addresses, its port tables, and its device's tables of live connections.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address::{Interface, Subnet, is_link_local};
use crate::data::fault::MemoryFaults;
use crate::device::SimDevice;
use crate::fabric::Fabric;
use crate::id::IdNo;
use crate::ports::Ports;
use crate::table::Table;
use crate::wire::CommId;
use crate::world::World;

/// Names one host; it also stands for the GUID of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HostNo(pub(crate) usize);

/// Names one RDMA device of a host; another one that comes after it has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNo {
    pub(crate) host: HostNo,
    pub(crate) incarnation: u32,
}

#[derive(Debug)]
pub(crate) struct HostState {
    /// Addresses with an RDMA device.
    pub(crate) rdma: Vec<IpAddr>,
    /// Addresses without.
    pub(crate) plain: Vec<IpAddr>,
    /// Those of `plain` that are on interfaces without ARP.
    pub(crate) noarp: BTreeSet<IpAddr>,
    pub(crate) link_up: bool,
    /// Its RDMA device is there.
    device: bool,
    /// How many devices it has had.
    pub(crate) incarnation: u32,
    /// How calls about memory are to fail.
    pub(crate) faults: MemoryFaults,
    /// How the next join of a multicast group fails, if it is to.
    pub(crate) refused_join: Option<i32>,
    pub(crate) ports: Ports,
    /// Addresses whose link address is cached.
    pub(crate) neighbours: BTreeSet<IpAddr>,
    /// Connections by their peer's device and its name for them.
    pub(crate) remote_ids: Table<(HostNo, CommId), IdNo>,
    /// Connections by their peer's device and QP number, each of which may be used once at a time.
    pub(crate) remote_qps: Table<(HostNo, u32), IdNo>,
    pub(crate) next_qp_num: u32,
}

impl HostState {
    pub(crate) fn new(addresses: &[IpAddr]) -> Self {
        HostState {
            rdma: addresses.to_vec(),
            plain: Vec::new(),
            noarp: BTreeSet::new(),
            link_up: true,
            device: true,
            incarnation: 0,
            faults: MemoryFaults::default(),
            refused_join: None,
            ports: Ports::default(),
            neighbours: BTreeSet::new(),
            remote_ids: Table::default(),
            remote_qps: Table::default(),
            // Far from what a program without QPs would choose.
            next_qp_num: 0x10_0000,
        }
    }

    /// Whether the host has an RDMA device at this time.
    pub(crate) fn has_device(&self) -> bool {
        self.device && !self.rdma.is_empty()
    }

    /// The device goes, or one like it comes; false if it was so before.
    pub(crate) fn set_device(&mut self, present: bool) -> bool {
        let changed = std::mem::replace(&mut self.device, present) != present;
        if changed && present {
            self.incarnation += 1;
        }
        changed
    }

    /// The interface of one of the host's own addresses.
    pub(crate) fn interface_of(&self, ip: IpAddr) -> Option<Interface> {
        if self.rdma.contains(&ip) {
            Some(Interface::rdma(ip))
        } else if self.noarp.contains(&ip) {
            Some(Interface::without_arp(ip))
        } else if self.plain.contains(&ip) {
            Some(Interface::plain(ip))
        } else {
            None
        }
    }

    /// The host's own address from which it reaches another one: of the same network if there is one, else of any of
    /// the family, as by a router. IPv4 takes the first (`fib_add_ifaddr`), IPv6 the last (`ipv6_link_dev_addr`), and a
    /// link-local one where that is enough, and only there (RFC 6724, rule 2).
    pub(crate) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        source_among(self.rdma.iter().chain(&self.plain), dst)
    }

    /// The host's own address from which a packet to a group leaves by an interface. An IPv4 one is the first of it
    /// (`inet_select_addr`). The addresses of the RDMA device, of both families, are all on one interface.
    pub(crate) fn source_on(&self, interface: Interface, group: IpAddr) -> Option<IpAddr> {
        let on = |ip: &&IpAddr| self.interface_of(**ip) == Some(interface);
        match (interface.rdma, group) {
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

impl World {
    /// The host whose RDMA device answers at an address.
    pub(crate) fn rdma_host_of(&self, ip: IpAddr) -> Option<HostNo> {
        self.hosts.iter().position(|host| host.has_device() && host.rdma.contains(&ip)).map(HostNo)
    }

    /// Whether any host has an address in the same network.
    pub(crate) fn is_routed(&self, ip: IpAddr) -> bool {
        let net = Subnet::of(ip);
        self.hosts.iter().any(|host| host.rdma.iter().chain(&host.plain).any(|&own| Subnet::of(own) == net))
    }

    /// Whether a host answers when asked for the link address of `ip`.
    pub(crate) fn answers(&self, ip: IpAddr) -> bool {
        self.hosts.iter().any(|host| host.link_up && (host.rdma.contains(&ip) || host.plain.contains(&ip)))
    }
}

/// A host of a fabric. Clones name the same host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) fabric: Fabric,
    pub(crate) no: HostNo,
}

impl Host {
    /// Adds an address on a network interface without an RDMA device: binding to it fails with `ENODEV`, its link
    /// address can be found, and nobody answers connection requests to it.
    pub fn add_plain_addr(&self, ip: IpAddr) {
        self.fabric.with(|world| {
            if let Some(host) = world.hosts.get_mut(self.no.0) {
                host.plain.push(ip);
            }
        });
    }

    /// The same on an interface that does without ARP, as Linux's `dummy` does: every address of its network counts as
    /// found, whether somebody has it or not (`IFF_NOARP`).
    pub fn add_plain_addr_without_arp(&self, ip: IpAddr) {
        self.fabric.with(|world| {
            if let Some(host) = world.hosts.get_mut(self.no.0) {
                host.plain.push(ip);
                host.noarp.insert(ip);
            }
        });
    }

    /// A device of this host: what one process has of it. All devices of a host share its port tables.
    #[must_use]
    pub fn device(&self) -> SimDevice {
        SimDevice::new(self.clone())
    }

    /// Takes the host's link down or up. While it is down nothing arrives at the host or leaves it, which is how a peer
    /// sees a host that vanished.
    pub fn set_link(&self, up: bool) {
        self.fabric.with(|world| {
            if let Some(host) = world.hosts.get_mut(self.no.0) {
                host.link_up = up;
            }
        });
    }

    /// The host's link address changes. Every id that has resolved a route to it gets UNREACHABLE (−110), established
    /// ones too, also those on this host; the ids stay as they are (`cma_netevent_callback`, since Linux 6.0).
    pub fn change_link_addr(&self) {
        self.fabric.with(|world| world.neighbour_changed(self.no, |_| true));
    }

    /// The host's network interfaces are a bond, and it fails over: every id of the host that is bound to an address of
    /// its device, listening, resolved and connected ones too, gets ADDR_CHANGE (0), a wildcard listener does not
    /// (`cma_netdev_callback`). Other hosts see what [`Host::change_link_addr`] lets them see; this one keeps no link
    /// address of its own.
    pub fn fail_over(&self) {
        self.fabric.with(|world| world.fail_over(self.no));
    }

    /// Takes the host's RDMA device away; its network stays. Every id that has the device gets DEVICE_REMOVAL (0), and
    /// from then on `ENXIO` for everything but its destruction. Not so ids without a device, wildcard listeners among
    /// them, which stay as they are; connections that were not accepted get no event, but the `ENXIO`.
    ///
    /// Nothing is sent: peers see a host that has vanished. A QP is flushed into its completion queues and is gone
    /// then; posting to it is `EINVAL`. Completion queues can be polled on, and memory be read and written; a region
    /// can only be deregistered, which fails with `EIO`
    /// ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    pub fn remove_device(&self) {
        self.fabric.with(|world| world.remove_device(self.no));
    }

    /// Brings the host an RDMA device again: wildcard listeners take requests that come to it (`cma_add_one`). Ids of
    /// the device before stay dead.
    pub fn add_device(&self) {
        self.fabric.with(|world| {
            if let Some(host) = world.hosts.get_mut(self.no.0) {
                host.set_device(true);
            }
        });
    }

    /// The next join of a multicast group on this host ends in MULTICAST_ERROR with that status, a negative errno, as
    /// an InfiniBand subnet manager may have it. The membership has to be left even so.
    pub fn fail_next_join(&self, status: i32) {
        self.fabric.with(|world| {
            if let Some(host) = world.hosts.get_mut(self.no.0) {
                host.refused_join = Some(status);
            }
        });
    }

    /// Each membership of that group on this host gets MULTICAST_ERROR (−102, `ENETRESET`), as on InfiniBand when the
    /// group is lost. QPs stay attached, and the memberships have to be left.
    pub fn lose_group(&self, group: IpAddr) {
        self.fabric.with(|world| world.lose_group(self.no, group));
    }
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
