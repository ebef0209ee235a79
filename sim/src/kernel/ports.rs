//! The port tables of a host, one per port space (`cma_check_port`, `cma_alloc_any_port`).

use std::net::IpAddr;

use cmid_proto::{Errno, PortSpace};

use crate::fabric::rng::Rng;
use crate::fabric::table::Table;
use crate::index::IdNo;
use crate::kernel::address::is_any;

/// `ip_local_port_range`.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

#[derive(Debug, Default)]
pub(crate) struct Ports {
    owners: Table<(PortSpace, u16), Vec<Owner>>,
}

/// An id that is bound to a port, and its options for sharing it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) id: IdNo,
    pub(crate) ip: IpAddr,
    pub(crate) reuse_addr: bool,
    pub(crate) af_only: bool,
}

impl Ports {
    /// Binds an id to a port; port 0 selects a free one. Returns the port.
    pub(crate) fn take(&mut self, space: PortSpace, port: u16, owner: Owner, rng: &mut Rng) -> Result<u16, Errno> {
        let port = if port == 0 { self.free_port(space, rng)? } else { port };
        self.check(space, port, owner)?;
        self.owners.or_default((space, port)).push(owner);
        Ok(port)
    }

    /// Updates the options of an owner.
    pub(crate) fn update(&mut self, space: PortSpace, port: u16, owner: Owner) {
        for old in self.owners.get_mut(&(space, port)).into_iter().flatten() {
            if old.id == owner.id {
                *old = owner;
            }
        }
    }

    pub(crate) fn release(&mut self, space: PortSpace, port: u16, id: IdNo) {
        if let Some(owners) = self.owners.get_mut(&(space, port)) {
            owners.retain(|owner| owner.id != id);
            if owners.is_empty() {
                self.owners.remove(&(space, port));
            }
        }
    }

    /// The ids that are bound to a port, oldest first.
    pub(crate) fn owners(&self, space: PortSpace, port: u16) -> impl Iterator<Item = IdNo> + '_ {
        self.owners.get(&(space, port)).into_iter().flatten().map(|owner| owner.id)
    }

    /// Checks whether an id may share a port with its owners. A wildcard on either side has priority over an equal
    /// address: `EADDRNOTAVAIL` comes before `EADDRINUSE`.
    pub(crate) fn check(&self, space: PortSpace, port: u16, owner: Owner) -> Result<(), Errno> {
        for other in self.owners.get(&(space, port)).into_iter().flatten() {
            let apart = owner.af_only && other.af_only && owner.ip.is_ipv4() != other.ip.is_ipv4();
            if owner.id == other.id || (owner.reuse_addr && other.reuse_addr) || apart {
                continue;
            }
            if is_any(owner.ip) || is_any(other.ip) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if owner.ip == other.ip {
                return Err(Errno::EADDRINUSE);
            }
        }
        Ok(())
    }

    fn free_port(&self, space: PortSpace, rng: &mut Rng) -> Result<u16, Errno> {
        let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
        let first = rng.below(u64::from(count)) as u16;
        (0..count)
            .map(|step| EPHEMERAL.start() + ((u32::from(first) + u32::from(step)) % u32::from(count)) as u16)
            .find(|&port| !self.owners.contains_key(&(space, port)))
            .ok_or(Errno::EADDRNOTAVAIL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: u64, ip: &str) -> Owner {
        Owner { id: IdNo(id), ip: ip.parse().unwrap(), reuse_addr: false, af_only: false }
    }

    #[test]
    fn conflicts_are_the_kernels() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let mut next = 0;
        let mut take = |addr, port| {
            next += 1;
            ports.take(PortSpace::Tcp, port, owner(next, addr), &mut rng)
        };
        assert_eq!(take("10.0.0.1", 7), Ok(7));
        assert_eq!(take("10.0.0.1", 7), Err(Errno::EADDRINUSE));
        assert_eq!(take("0.0.0.0", 7), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(take("127.0.0.1", 7), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(take("10.0.0.2", 7), Ok(7));
        assert_eq!(take("0.0.0.0", 8), Ok(8));
        assert_eq!(take("10.0.0.1", 8), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(ports.take(PortSpace::Ib, 7, owner(9, "10.0.0.1"), &mut rng), Ok(7));
    }

    #[test]
    fn what_both_are_ready_to_share_is_shared() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let sharing = |id, ip| Owner { reuse_addr: true, ..owner(id, ip) };
        assert_eq!(ports.take(PortSpace::Tcp, 7, sharing(1, "10.0.0.1"), &mut rng), Ok(7));
        assert_eq!(ports.take(PortSpace::Tcp, 7, owner(2, "10.0.0.1"), &mut rng), Err(Errno::EADDRINUSE));
        assert_eq!(ports.take(PortSpace::Tcp, 7, sharing(3, "10.0.0.1"), &mut rng), Ok(7));
        // An exclusive owner does not share, even if the others would.
        assert_eq!(ports.check(PortSpace::Tcp, 7, owner(1, "10.0.0.1")), Err(Errno::EADDRINUSE));
        ports.release(PortSpace::Tcp, 7, IdNo(3));
        assert_eq!(ports.check(PortSpace::Tcp, 7, owner(1, "10.0.0.1")), Ok(()));
    }

    #[test]
    fn families_are_apart_if_both_say_so() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let only = |id, ip| Owner { af_only: true, ..owner(id, ip) };
        assert_eq!(ports.take(PortSpace::Tcp, 7, only(1, "0.0.0.0"), &mut rng), Ok(7));
        assert_eq!(ports.take(PortSpace::Tcp, 7, owner(2, "::"), &mut rng), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(ports.take(PortSpace::Tcp, 7, only(2, "::"), &mut rng), Ok(7));
    }

    #[test]
    fn ephemeral_ports_differ_and_run_out() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..=60999 - 32768 {
            let port = ports.take(PortSpace::Tcp, 0, owner(n, "10.0.0.1"), &mut rng).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
            if n == 100 {
                break;
            }
        }
        for port in EPHEMERAL {
            ports.owners.or_default((PortSpace::Tcp, port));
        }
        assert_eq!(ports.take(PortSpace::Tcp, 0, owner(0, "10.0.0.1"), &mut rng), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn a_released_port_is_free() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        assert_eq!(ports.take(PortSpace::Tcp, 7, owner(1, "10.0.0.1"), &mut rng), Ok(7));
        ports.release(PortSpace::Tcp, 7, IdNo(1));
        assert_eq!(ports.take(PortSpace::Tcp, 7, owner(2, "0.0.0.0"), &mut rng), Ok(7));
        assert_eq!(ports.owners(PortSpace::Tcp, 7).collect::<Vec<_>>(), [IdNo(2)]);
    }
}
