//! `rdma_set_option`, level `RDMA_OPTION_ID` (`ucma_set_option_id`).

use std::net::IpAddr;

use cmid_proto::{CmOption, Errno};

use crate::fabric::world::World;
use crate::index::IdNo;
use crate::kernel::id::CmState;
use crate::kernel::ports::Owner;

/// The options that were set for an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Whether other ids with this option may bind the address; not while it listens.
    pub(crate) reuse_addr: bool,
    /// `None` until it is set or the id is bound. The default is then true for IPv4 and false for IPv6.
    pub(crate) af_only: Option<bool>,
    /// A route treats 0 as not set. For a QP it means no time-out.
    pub(crate) ack_timeout: Option<u8>,
    /// The type of service; 0 until it is set.
    pub(crate) tos: u8,
}

impl Options {
    /// The port table's record of an id with these options and this address.
    pub(crate) fn owner(self, id: IdNo, ip: IpAddr) -> Owner {
        Owner { id, ip, reuse_addr: self.reuse_addr, af_only: self.takes_only_its_family(ip) }
    }

    /// `afonly` of the kernel.
    pub(crate) fn takes_only_its_family(self, ip: IpAddr) -> bool {
        self.af_only.unwrap_or(ip.is_ipv4())
    }
}

impl World {
    /// `rdma_set_option`.
    pub(crate) fn set_option(&mut self, no: IdNo, option: CmOption) -> Result<(), Errno> {
        let id = self.id(no)?;
        match option {
            CmOption::Tos(tos) => id.options.tos = tos,
            CmOption::ReuseAddr(on) => {
                let allowed = if on { id.state != CmState::Listen } else { id.state == CmState::Idle };
                ensure(allowed)?;
                id.options.reuse_addr = on;
            }
            CmOption::AfOnly(on) => {
                ensure(matches!(id.state, CmState::Idle | CmState::AddrBound))?;
                id.options.af_only = Some(on);
            }
            CmOption::AckTimeout(value) => {
                ensure(!id.is_datagram())?;
                id.options.ack_timeout = Some(value);
            }
        }
        self.update_ports(no);
        Ok(())
    }

    /// Updates the port table after a change of a bound id.
    pub(crate) fn update_ports(&mut self, no: IdNo) {
        let Some(id) = self.ids.get(&no) else { return };
        if let (Some(port), Some(src), Some(host)) = (id.port, id.src, self.hosts.get_mut(id.host.0)) {
            host.ports.update(id.port_space, port, id.options.owner(no, src.ip()));
        }
    }
}

fn ensure(allowed: bool) -> Result<(), Errno> {
    if allowed { Ok(()) } else { Err(Errno::EINVAL) }
}
