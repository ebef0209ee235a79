//! The options of an id.

use std::net::IpAddr;

use crate::index::IdNo;
use crate::kernel::ports::Owner;

/// What was set of an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The address may be bound to by others that have this set too; not while it listens.
    pub(crate) reuse_addr: bool,
    /// `None` until it is set or the id is bound: then an IPv4 id keeps to its family, and an IPv6 one takes both.
    pub(crate) af_only: Option<bool>,
    /// 0 until it is set.
    pub(crate) ack_timeout: u8,
    /// The type of service; 0 until it is set.
    pub(crate) tos: u8,
}

impl Options {
    /// An id with these options, bound to that address, as the port table sees it.
    pub(crate) fn owner(self, id: IdNo, ip: IpAddr) -> Owner {
        Owner { id, ip, reuse_addr: self.reuse_addr, af_only: self.takes_only_its_family(ip) }
    }

    /// `afonly` of the kernel.
    pub(crate) fn takes_only_its_family(self, ip: IpAddr) -> bool {
        self.af_only.unwrap_or(ip.is_ipv4())
    }
}
