//! The port tables of a host, one per port space (`cma_check_port`, `cma_alloc_any_port`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use cmid_proto::{Errno, PortSpace};

use crate::address::is_any;
use crate::id::IdNo;
use crate::rng::Rng;

/// `ip_local_port_range`.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

#[derive(Debug, Default)]
pub(crate) struct Ports {
    owners: BTreeMap<(PortSpace, u16), Vec<(IdNo, IpAddr)>>,
}

impl Ports {
    /// Takes a port for an id; port 0 asks for a free one. Returns the port.
    pub(crate) fn take(
        &mut self,
        space: PortSpace,
        ip: IpAddr,
        port: u16,
        id: IdNo,
        rng: &mut Rng,
    ) -> Result<u16, Errno> {
        let port = if port == 0 { self.free_port(space, rng)? } else { port };
        self.check(space, ip, port)?;
        self.owners.entry((space, port)).or_default().push((id, ip));
        Ok(port)
    }

    pub(crate) fn release(&mut self, space: PortSpace, port: u16, id: IdNo) {
        if let Some(owners) = self.owners.get_mut(&(space, port)) {
            owners.retain(|&(owner, _)| owner != id);
            if owners.is_empty() {
                self.owners.remove(&(space, port));
            }
        }
    }

    /// Who is bound to a port, oldest first.
    pub(crate) fn owners(&self, space: PortSpace, port: u16) -> impl Iterator<Item = IdNo> + '_ {
        self.owners.get(&(space, port)).into_iter().flatten().map(|&(id, _)| id)
    }

    /// A wildcard on either side beats an equal address: `EADDRNOTAVAIL` comes before `EADDRINUSE`.
    fn check(&self, space: PortSpace, ip: IpAddr, port: u16) -> Result<(), Errno> {
        for &(_, other) in self.owners.get(&(space, port)).into_iter().flatten() {
            if is_any(ip) || is_any(other) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if ip == other {
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

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn conflicts_are_the_kernels() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let mut take = |addr, port| ports.take(PortSpace::Tcp, ip(addr), port, IdNo(1), &mut rng);
        assert_eq!(take("10.0.0.1", 7), Ok(7));
        assert_eq!(take("10.0.0.1", 7), Err(Errno::EADDRINUSE));
        assert_eq!(take("0.0.0.0", 7), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(take("127.0.0.1", 7), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(take("10.0.0.2", 7), Ok(7));
        assert_eq!(take("0.0.0.0", 8), Ok(8));
        assert_eq!(take("10.0.0.1", 8), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(ports.take(PortSpace::Ib, ip("10.0.0.1"), 7, IdNo(2), &mut rng), Ok(7));
    }

    #[test]
    fn ephemeral_ports_differ_and_run_out() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..=60999 - 32768 {
            let port = ports.take(PortSpace::Tcp, ip("10.0.0.1"), 0, IdNo(n), &mut rng).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
            if n == 100 {
                break;
            }
        }
        for port in EPHEMERAL {
            ports.owners.entry((PortSpace::Tcp, port)).or_default();
        }
        assert_eq!(ports.take(PortSpace::Tcp, ip("10.0.0.1"), 0, IdNo(0), &mut rng), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn a_released_port_is_free() {
        let mut rng = Rng::new(1);
        let mut ports = Ports::default();
        assert_eq!(ports.take(PortSpace::Tcp, ip("10.0.0.1"), 7, IdNo(1), &mut rng), Ok(7));
        ports.release(PortSpace::Tcp, 7, IdNo(1));
        assert_eq!(ports.take(PortSpace::Tcp, ip("0.0.0.0"), 7, IdNo(2), &mut rng), Ok(7));
        assert_eq!(ports.owners(PortSpace::Tcp, 7).collect::<Vec<_>>(), [IdNo(2)]);
    }
}
