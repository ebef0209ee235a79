//! Transmission of messages between hosts.

use std::net::IpAddr;

use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::address::Subnet;
use crate::kernel::due::Due;
use crate::kernel::wire::Message;

impl World {
    /// Sends a message; it may be lost.
    pub(crate) fn transmit(&mut self, message: Message) {
        self.counters.sent += 1;
        if self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        let due = self.now.after(self.config.latency);
        self.timers.arm(due, Due::Message(message));
    }

    /// Decides whether the next message is lost.
    pub(crate) fn is_lost(&mut self) -> bool {
        self.config.loss > 0.0 && self.rng.chance(self.config.loss)
    }

    /// Delivers a message to its address, if there is a device and both links are up.
    pub(crate) fn deliver(&mut self, message: Message) {
        let link_up = |host: HostNo| self.hosts.get(host.0).is_some_and(|host| host.link_up);
        match self.rdma_host_of(message.head.to_ip) {
            Some(at) if link_up(at) && link_up(message.head.from) => self.receive(at, message),
            Some(_) | None => self.counters.undeliverable += 1,
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

    /// Whether a host answers a request for the link address of `ip`.
    pub(crate) fn answers(&self, ip: IpAddr) -> bool {
        self.hosts.iter().any(|host| host.link_up && (host.rdma.contains(&ip) || host.plain.contains(&ip)))
    }
}
