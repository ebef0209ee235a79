//! A host of a fabric, with fault injection.

use std::net::IpAddr;

use cmid_proto::Transport;
use cmid_proto::datapath::{AsyncEventKind, AsyncSource};

use crate::fabric::Fabric;
use crate::index::HostNo;
use crate::kernel::gid::PORT;
use crate::kernel::host::HostState;

/// A host of a fabric. Clones refer to the same host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) fabric: Fabric,
    pub(crate) no: HostNo,
}

impl Fabric {
    /// Adds a host with these IPv4 or IPv6 addresses, all on RDMA-capable interfaces. There is one interface for each
    /// /24 or /64, and one device for all.
    #[must_use]
    pub fn host(&self, addresses: &[IpAddr]) -> Host {
        self.host_with(addresses, Transport::InfiniBand)
    }

    /// As [`Fabric::host`], with a device of this transport. Devices of different transports cannot be connected.
    #[must_use]
    pub fn host_with(&self, addresses: &[IpAddr], transport: Transport) -> Host {
        self.host_with_devices(&[addresses], transport)
    }

    /// As [`Fabric::host_with`], with several devices: one for each list of addresses. The device of an id is that of its
    /// source address. All of them are removed and added together.
    #[must_use]
    pub fn host_with_devices(&self, devices: &[&[IpAddr]], transport: Transport) -> Host {
        let no = self.with(|world| {
            let mut host = HostState::new(&devices.concat());
            for (index, addresses) in (1..=u8::MAX).zip(devices.iter().skip(1)) {
                host.on_later_devices.extend(addresses.iter().map(|&ip| (ip, index)));
            }
            host.transport = transport;
            world.hosts.push(host);
            HostNo(world.hosts.len() - 1)
        });
        Host { fabric: self.clone(), no }
    }
}

impl Host {
    /// Runs an action on the state of this host.
    pub(crate) fn with_state<T>(&self, action: impl FnOnce(&mut HostState) -> T) -> Option<T> {
        self.fabric.with(|world| world.hosts.get_mut(self.no.0).map(action))
    }

    /// Adds an address on a network interface without an RDMA device. Binding to it fails with `ENODEV`. Its link
    /// address can be resolved, and connection requests to it are not answered.
    pub fn add_plain_addr(&self, ip: IpAddr) {
        self.with_state(|host| host.plain.push(ip));
    }

    /// As [`Host::add_plain_addr`], on an interface without ARP (`IFF_NOARP`), such as Linux's `dummy`: the link
    /// address of every address of its network counts as resolved, even if no host has it.
    pub fn add_plain_addr_without_arp(&self, ip: IpAddr) {
        self.with_state(|host| {
            host.plain.push(ip);
            host.noarp.insert(ip);
        });
    }

    /// A program of the host starts: the log counts its devices from 1.
    pub(crate) fn begin_process(&self) {
        self.with_state(|host| host.opened = 0);
    }

    /// Sets the host's link down or up. While it is down, no message arrives at the host or leaves it; a peer cannot
    /// distinguish this from a crashed host. Connected QPs repeat their packets when it is up again, if they have not
    /// given up: with a `retry_count` of 7 they never do, as with soft-RoCE.
    pub fn set_link(&self, up: bool) {
        self.fabric.with(|world| {
            let Some(host) = world.hosts.get_mut(self.no.0) else { return };
            if std::mem::replace(&mut host.link_up, up) != up {
                let kind = if up { AsyncEventKind::PORT_ACTIVE } else { AsyncEventKind::PORT_ERR };
                for device in world.devices_of(self.no) {
                    world.raise_event(device, kind, AsyncSource::Port(PORT));
                }
                if up {
                    world.retry(Some(self.no));
                }
            }
        });
    }

    /// Changes the host's link address. Every id with a resolved route to it gets UNREACHABLE (−110), including
    /// established ones and those on this host. The ids keep their state (`cma_netevent_callback`, since Linux 6.0).
    pub fn change_link_addr(&self) {
        self.fabric.with(|world| world.change_link_addr(self.no));
    }

    /// Simulates a failover of the bond of the host's two network interfaces to the other one. Every id of the host
    /// that is bound to an address of its device gets ADDR_CHANGE (0), including listening, resolved and connected
    /// ones; a wildcard listener, or an id whose only lookup was of a loopback address, does not
    /// (`cma_netdev_callback`). Other hosts observe the same as with [`Host::change_link_addr`]; this host has no
    /// cached entry for its own link address. The next failover is the way back: only ids whose address was bound or
    /// resolved in between get an event.
    pub fn fail_over(&self) {
        self.fabric.with(|world| world.fail_over(self.no));
    }

    /// Removes the host's RDMA device; its network stays. Every id that has the device gets DEVICE_REMOVAL (0), and
    /// later requests except destroy fail with `ENXIO`. Ids without a device, such as wildcard listeners, do not
    /// change. Connections that were not accepted get no event, but their requests fail with `ENXIO` too.
    ///
    /// Peers get the messages of a destroy: a connected one gets DISCONNECTED. A host that crashes sends none
    /// ([`set_link`](Host::set_link)). A QP is flushed to its completion queues and then removed; posting to it fails
    /// with `EINVAL`. Completion queues can still be polled, and memory can be read and written. A region can only be
    /// deregistered, which fails with `EIO` ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    pub fn remove_device(&self) {
        self.fabric.with(|world| world.remove_device(self.no));
    }

    /// Adds an RDMA device to the host again: wildcard listeners receive its requests (`cma_add_one`). Ids of the
    /// previous device stay unusable.
    pub fn add_device(&self) {
        self.with_state(|host| host.set_device(true));
    }

    /// Makes the next join of a multicast group on this host end in MULTICAST_ERROR with this status, a negative
    /// errno, as an InfiniBand subnet manager may do. The membership must be left nevertheless.
    pub fn fail_next_join(&self, status: i32) {
        self.with_state(|host| host.refused_join = Some(status));
    }

    /// Reports MULTICAST_ERROR (−102, `ENETRESET`) for each membership of the group on this host, as on InfiniBand
    /// when a group is lost. QPs stay attached, and the memberships must be left.
    pub fn lose_group(&self, group: IpAddr) {
        self.fabric.with(|world| world.lose_group(self.no, group));
    }
}
