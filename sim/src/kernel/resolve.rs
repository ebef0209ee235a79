//! `rdma_resolve_addr` and `rdma_resolve_route`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cmid_proto::{CmEvent, Errno, PortSpace};

use crate::fabric::config::LifeTime;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::IdNo;
use crate::kernel::address::{
    Interface, Subnet, is_any, is_for_many, is_link_local, is_subnet_broadcast, loopback_like, wildcard_like,
};
use crate::kernel::channel::Unread;
use crate::kernel::due::{Due, Lookup};
use crate::kernel::host::HostState;
use crate::kernel::ib_cm::TIMED_OUT;
use crate::kernel::id::CmState;
use crate::kernel::iw_cm::is_own_loopback;

/// `-ENODEV`.
const NO_DEVICE: i32 = -19;

/// `-EINVAL`.
const INVALID: i32 = -22;

impl World {
    /// `rdma_resolve_addr`.
    pub(crate) fn resolve_addr(
        &mut self,
        no: IdNo,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout_ms: i32,
    ) -> Result<(), Errno> {
        // The kernel keeps the destination of a failed lookup, and returns it in the next query.
        match self.id(no)?.state {
            CmState::Idle => {
                if src.is_none() && is_link_local(dst.ip()) {
                    self.confine_to_link(no, dst)?;
                }
                self.bind_kernel(no, src.unwrap_or_else(|| wildcard_like(dst)), Some(dst))?;
            }
            // The bound address is used, not `src`.
            CmState::AddrBound => self.id(no)?.dst = Some(dst),
            CmState::AddrQuery
            | CmState::AddrResolved
            | CmState::RouteQuery
            | CmState::RouteResolved
            | CmState::Connect
            | CmState::Disconnect
            | CmState::Listen => return Err(Errno::EINVAL),
        }
        // `cma_resolve_loopback` binds an id that has no device.
        if self.is_on_iwarp(no)? && is_own_loopback(&dst) && self.id(no)?.device.is_none() {
            return Err(Errno::EINVAL);
        }
        let (outcome, after) = self.look_up(no, dst, timeout_ms)?;
        let lookup = self.timers.arm(self.now.after(after), Due::Address { id: no, outcome });
        let id = self.id(no)?;
        id.state = CmState::AddrQuery;
        id.known_dst = Some(dst);
        id.lookup = Some(lookup);
        Ok(())
    }

    /// Confines later lookups to the link of a destination, and replaces the interface of an earlier attempt
    /// (`cma_bind_addr`).
    fn confine_to_link(&mut self, no: IdNo, dst: SocketAddr) -> Result<(), Errno> {
        let host = self.id(no)?.host;
        let link = self.hosts.get(host.0).ok_or(Errno::ENODEV)?.interface_of_scope(dst);
        self.id(no)?.interface = link;
        Ok(())
    }

    /// The result of a lookup, and its delay. An `Err` is returned by the call itself.
    fn look_up(&mut self, no: IdNo, dst: SocketAddr, timeout_ms: i32) -> Result<(Lookup, Duration), Errno> {
        let id = self.id(no)?;
        let (host_no, bound, confined) = (id.host, id.src.ok_or(Errno::EINVAL)?, id.interface);
        let host = self.hosts.get(host_no.0).ok_or(Errno::ENODEV)?;
        let ip = dst.ip();
        if bound.is_ipv4() != dst.is_ipv4() {
            return Err(Errno::EINVAL);
        }
        if is_any(ip) {
            // Any device is accepted; the route then fails. An id without a specific address gets the loopback
            // address as its source, even if it is bound to the wildcard. It gets its device now (`cma_bind_loopback`).
            if !host.has_device() {
                return Err(Errno::ENODEV);
            }
            let own = if is_any(bound.ip()) { loopback_like(ip) } else { bound.ip() };
            let turn = self.next_turn();
            self.id(no)?.device.get_or_insert(turn);
            return Ok((Ok(own), LOCAL_WORK));
        }
        if is_for_many(ip) {
            // An interface without a device has at least the link-local IPv6 address that every interface has.
            if ip.is_ipv6() && is_any(bound.ip()) && confined.is_some_and(|chosen| !chosen.has_device()) {
                return Ok((Err(NO_DEVICE), LOCAL_WORK));
            }
            let own = source_for_many(host, bound.ip(), ip, confined)?;
            let way_out = host.interface_of(own).ok_or(Errno::ENETUNREACH)?;
            self.id(no)?.interface.get_or_insert(way_out);
            // The source may be the IPv6 loopback address, which no device has. iWARP does not look for it
            // (`cma_acquire_dev_by_src_ip`).
            let on_loopback = bound.ip().is_loopback();
            let named = way_out.has_device() && (!on_loopback || self.is_on_iwarp(no)?);
            let own = if on_loopback { bound.ip() } else { own };
            return Ok((if named { Ok(own) } else { Err(NO_DEVICE) }, LOCAL_WORK));
        }
        let local = host.interface_of(ip);
        // The broadcast address of a host's network counts as a local address.
        let local = match host.source_for(ip).filter(|_| is_subnet_broadcast(ip)) {
            Some(near) if Subnet::of(near) == Subnet::of(ip) => host.interface_of(near),
            Some(_) | None => local,
        };
        let broadcast = local.is_some() && host.interface_of(ip).is_none();
        if bound.ip().is_loopback() {
            // Packets with a loopback source cannot leave by the interface that the id is confined to
            // (`__mkroute_output`).
            if broadcast || confined.is_some_and(|chosen| local.is_none_or(|local| local != chosen)) {
                return Err(Errno::EINVAL);
            }
            return match self.is_routed(ip) {
                false => Err(Errno::ENETUNREACH),
                true if local.is_none() && ip.is_ipv4() => Err(Errno::EINVAL),
                true => {
                    // RoCE looks for the source in the device's table of GIDs, iWARP for the interface of the destination
                    // (`cma_acquire_dev_by_src_ip`).
                    let found = self.is_on_iwarp(no)? && local.is_some_and(Interface::has_device);
                    let chosen = &mut self.id(no)?.interface;
                    *chosen = chosen.or(local);
                    Ok((if found { Ok(bound.ip()) } else { Err(NO_DEVICE) }, LOCAL_WORK))
                }
            };
        }
        // A negative time is without end (`msecs_to_jiffies`).
        let timeout = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis).max(LOCAL_WORK);
        if !self.is_routed(ip) {
            // With a given interface IPv4 treats every address as a neighbour (`ip_route_output_key`); here it does
            // not answer. IPv6 requires a route (`ip6_route_output_flags`).
            return match confined {
                Some(_) if ip.is_ipv6() => Err(Errno::ENETUNREACH),
                None => Err(Errno::ENETUNREACH),
                Some(chosen) if chosen.arp => Ok((Err(TIMED_OUT), timeout)),
                Some(_) => Ok((Err(NO_DEVICE), LOCAL_WORK)),
            };
        }
        // The source for a local IPv6 destination is the destination itself (RFC 6724, rule 1). For IPv4 it is the
        // first address of the network: the route to the others has it as the source (`fib_add_ifaddr`).
        let own = match local {
            Some(_) if ip.is_ipv6() && !broadcast => ip,
            Some(_) | None => host.source_for(ip).ok_or(Errno::ENETUNREACH)?,
        };
        let own = if bound.ip().is_unspecified() { own } else { bound.ip() };
        // The outgoing interface: that of a local destination, otherwise the one that the id is confined to if it is in
        // the destination's network, otherwise that of the host's source address for it.
        let way_out = match (local, confined.filter(|chosen| chosen.subnet == Subnet::of(ip))) {
            (Some(interface), _) | (None, Some(interface)) => interface,
            (None, None) => {
                let near = host.source_for(ip).ok_or(Errno::ENETUNREACH)?;
                host.interface_of(near).ok_or(Errno::ENETUNREACH)?
            }
        };
        if let Some(chosen) = confined {
            // All networks of a device are on one link. IPv6 finds a local address of another one, too, if the source
            // is given (`ip6_route_output_flags_noref`).
            let any_link = ip.is_ipv6() && !bound.ip().is_unspecified();
            let on_link = |local: Interface| local.has_device() && (any_link || local.device == chosen.device);
            if chosen != way_out && !(chosen.has_device() && local.is_some_and(on_link)) {
                if ip.is_ipv6() {
                    return Err(Errno::ENETUNREACH);
                }
                return Ok(if chosen.arp { (Err(TIMED_OUT), timeout) } else { (Err(NO_DEVICE), LOCAL_WORK) });
            }
        }
        let known = local.is_some() || !way_out.arp || host.neighbours.contains(&ip);
        let delay = if known {
            LOCAL_WORK
        } else {
            // A request and its answer.
            self.config.latency.saturating_mul(2).max(LOCAL_WORK)
        };
        let answered = known || self.answers(host_no, ip);
        self.id(no)?.interface.get_or_insert(way_out);
        if !answered || delay > timeout {
            return Ok((Err(TIMED_OUT), timeout));
        }
        if let Some(host) = self.hosts.get_mut(host_no.0) {
            host.neighbours.insert(ip);
        }
        Ok((if way_out.has_device() { Ok(own) } else { Err(NO_DEVICE) }, delay))
    }

    /// Completes an address lookup (`addr_handler`).
    pub(crate) fn address_found(&mut self, no: IdNo, outcome: Lookup) {
        let turn = self.next_turn();
        let Some(id) = self.ids.get_mut(&no) else { return };
        id.lookup = None;
        let host = self.hosts.get(id.host.0);
        let present = host.is_some_and(HostState::has_device);
        // Not checked for a destination that any device serves (`cma_bind_loopback`).
        let any_device = id.dst.is_some_and(|dst| is_any(dst.ip()));
        let acquired = match outcome {
            // `cma_acquire_dev_by_src_ip`, as for a bind.
            Ok(_) | Err(NO_DEVICE) if id.port_space == PortSpace::Ipoib && !any_device => Err(INVALID),
            Ok(_) if !present => Err(NO_DEVICE),
            Ok(_) | Err(_) => outcome,
        };
        let (kind, status) = match acquired {
            Ok(own) => {
                id.state = CmState::AddrResolved;
                id.device = id.device.or(Some(turn));
                let neighbour = self.hosts.iter().find(|host| id.dst.is_some_and(|dst| host.rdma.contains(&dst.ip())));
                id.neighbour_link = neighbour.map_or(0, |host| host.link_addr);
                // `cma_bind_loopback` chooses a device, and no interface.
                let has_interface = id.interface.is_some_and(Interface::has_device);
                id.own_link = host.filter(|_| has_interface).map(|host| host.link_addr);
                id.src = id.src.map(|bound| moved_to(own, bound));
                (CmEvent::AddrResolved, 0)
            }
            Err(status) => {
                id.state = CmState::AddrBound;
                (CmEvent::AddrError, status)
            }
        };
        // An id that was bound to a wildcard now shares its port with this address (`cma_check_port`).
        self.update_ports(no);
        self.report_plain(no, kind, status);
    }

    /// `rdma_resolve_route` on RoCE: needs no message (`cma_resolve_iboe_route`).
    pub(crate) fn resolve_route(&mut self, no: IdNo, timeout_ms: i32) -> Result<(), Errno> {
        let (now, turn) = (self.now, self.next_turn());
        // The kernel watches the neighbours of RoCE only.
        let watched = !self.is_on_iwarp(no)?;
        let usual = self.config.flavour.life_time();
        let id = self.ids.get_mut(&no).ok_or(Errno::EBADF)?;
        // If the library does not know a device, it follows a null pointer.
        if !id.verbs || id.device.is_none() || timeout_ms == 0 || id.state != CmState::AddrResolved {
            return Err(Errno::EINVAL);
        }
        // No address lookup has found an interface: only the device was chosen (`cma_resolve_loopback`).
        if id.interface.is_none() {
            return Err(Errno::ENODEV);
        }
        id.state = CmState::RouteQuery;
        id.watched = watched.then_some(turn);
        id.traffic_class = id.options.tos;
        id.life_time = Some(id.options.ack_timeout.and_then(LifeTime::of_ack_timeout).unwrap_or(usual));
        id.lookup = Some(self.timers.arm(now.after(LOCAL_WORK), Due::Route { id: no }));
        Ok(())
    }

    /// Completes a route lookup (`cma_work_handler`).
    pub(crate) fn route_found(&mut self, no: IdNo) {
        let Some(id) = self.ids.get_mut(&no) else { return };
        id.lookup = None;
        id.state = CmState::RouteResolved;
        self.report_plain(no, CmEvent::RouteResolved, 0);
    }

    /// Queues an event without parameters.
    pub(crate) fn report_plain(&mut self, owner: IdNo, kind: CmEvent, status: i32) {
        self.report(Unread::new(owner, kind, status));
    }
}

/// The source address for a group, without a lookup. The outgoing interface is the one of the bound address,
/// otherwise the one that the id is confined to. Otherwise a route is required, and an IPv4 host has none by default
/// (`ip_route_output_key_hash_rcu`).
fn source_for_many(
    host: &HostState,
    bound: IpAddr,
    group: IpAddr,
    confined: Option<Interface>,
) -> Result<IpAddr, Errno> {
    if !is_any(bound) {
        return Ok(bound);
    }
    match confined {
        // Packets with a loopback source cannot leave by an interface, and the loopback interface has no device.
        Some(_) if bound.is_loopback() && group.is_ipv4() => Err(Errno::EINVAL),
        None if bound.is_loopback() && group.is_ipv4() => Err(Errno::ENODEV),
        Some(chosen) => host.source_on(chosen, group).ok_or(Errno::ENETUNREACH),
        None if group.is_ipv6() => host.source_for(group).ok_or(Errno::ENETUNREACH),
        None => Err(Errno::ENETUNREACH),
    }
}

/// An address with the same port and scope, and another IP.
fn moved_to(ip: IpAddr, mut bound: SocketAddr) -> SocketAddr {
    bound.set_ip(ip);
    bound
}
