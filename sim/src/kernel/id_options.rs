//! The options of an id.

use std::net::IpAddr;

use crate::index::IdNo;
use crate::kernel::ports::Owner;

/// The options that were set for an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Whether other ids with this option may bind the address; not while it listens.
    pub(crate) reuse_addr: bool,
    /// `None` until it is set or the id is bound. The default is then true for IPv4 and false for IPv6.
    pub(crate) af_only: Option<bool>,
    /// 0 until it is set.
    pub(crate) ack_timeout: u8,
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
