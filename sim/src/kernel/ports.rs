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
    /// The newest first (`cma_bind_port`).
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
        self.owners.or_default((space, port)).insert(0, owner);
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

    /// The ids that are bound to a port, newest first: the first that takes a request gets it (`cma_find_listener`).
    pub(crate) fn owners(&self, space: PortSpace, port: u16) -> impl Iterator<Item = IdNo> + '_ {
        self.owners.get(&(space, port)).into_iter().flatten().map(|owner| owner.id)
    }

    /// Checks whether an id may share a port with its owners. The newest that it cannot share with decides the error:
    /// with a wildcard on either side it is `EADDRNOTAVAIL`, with an equal address `EADDRINUSE`.
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
}
