//! Transmission of messages between hosts.

use std::net::IpAddr;

use crate::fabric::rules::Kind;
use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::address::Subnet;
use crate::kernel::due::Due;
use crate::kernel::host::HostState;
use crate::kernel::wire::Message;

/// The bytes of each message: a management datagram.
const MAD: usize = 256;

impl World {
    /// Sends a message; it may be lost.
    pub(crate) fn transmit(&mut self, message: Message) {
        self.counters.sent += 1;
        if !self.hosts.get(message.head.from.0).is_some_and(|host| host.link_up) {
            self.counters.undeliverable += 1;
            return;
        }
        let (kind, from, to_ip) = (Kind::of(&message.body), message.head.from, message.head.to_ip);
        if self.is_lost(kind, from, |world| world.rdma_host_of(to_ip)) {
            self.counters.lost += 1;
            let to = self.rdma_host_of(to_ip).unwrap_or(from);
            self.log(from, to, true, || format!("{kind:?}"));
            return;
        }
        let (due, copy) = self.arrivals(kind, MAD, from, |world| world.rdma_host_of(to_ip));
        if let Some(later) = copy {
            self.timers.arm(later, Due::Message(Box::new(message.clone())));
        }
        self.timers.arm(due, Due::Message(Box::new(message)));
    }

    /// Delivers a message to its address, if there is a device and both links are up.
    pub(crate) fn deliver(&mut self, message: Message) {
        let (kind, from) = (Kind::of(&message.body), message.head.from);
        match self.rdma_host_of(message.head.to_ip) {
            Some(at) if self.passes(Some(kind), from, at) => {
                self.log(from, at, false, || format!("{kind:?}"));
                self.receive(at, message);
            }
            at => {
                self.counters.undeliverable += 1;
                self.log(from, at.unwrap_or(from), true, || format!("{kind:?}"));
            }
        }
    }

    /// The host with the RDMA device of an address.
    pub(crate) fn rdma_host_of(&self, ip: IpAddr) -> Option<HostNo> {
        self.hosts.iter().position(|host| host.has_device() && host.rdma.contains(&ip)).map(HostNo)
    }

    /// Whether any host has an address in the same network.
    pub(crate) fn is_routed(&self, ip: IpAddr) -> bool {
        let net = Subnet::of(ip);
        self.hosts.iter().any(|host| host.rdma.iter().chain(&host.plain).any(|&own| Subnet::of(own) == net))
    }

    /// Whether a host answers a request of another one for the link address of `ip`.
    pub(crate) fn answers(&mut self, from: HostNo, ip: IpAddr) -> bool {
        let has = |host: &HostState| host.rdma.contains(&ip) || host.plain.contains(&ip);
        (0..self.hosts.len()).any(|at| self.hosts.get(at).is_some_and(has) && self.passes(None, from, HostNo(at)))
    }
}
