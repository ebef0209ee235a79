//! A host of a fabric, and what can be made to happen to it.

use std::net::IpAddr;

use crate::fabric::Fabric;
use crate::index::HostNo;
use crate::kernel::host::HostState;

/// A host of a fabric. Clones name the same host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) fabric: Fabric,
    pub(crate) no: HostNo,
}

impl Fabric {
    /// Adds a host with these addresses, IPv4 or IPv6, all on RDMA-capable interfaces: one interface for each /24 or
    /// /64, one device for them all.
    #[must_use]
    pub fn host(&self, addresses: &[IpAddr]) -> Host {
        let no = self.with(|world| {
            world.hosts.push(HostState::new(addresses));
            HostNo(world.hosts.len() - 1)
        });
        Host { fabric: self.clone(), no }
    }
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
