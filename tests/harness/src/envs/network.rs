//! Addresses, ports and QP numbers, the same in all environments.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::Net;

/// Ports and QP numbers, each used once in this process.
static PORT: AtomicU16 = AtomicU16::new(20_000);
static QP_NUM: AtomicU32 = AtomicU32::new(0x1000);

pub(super) fn fresh() -> (u16, u32) {
    // In steps, because a scenario may use the following numbers too.
    (PORT.fetch_add(10, Ordering::Relaxed), QP_NUM.fetch_add(0x100, Ordering::Relaxed))
}

/// Returns the network of the project's VM, of which the simulated one has the same addresses.
pub(super) fn net() -> Net {
    Net {
        client: Ipv4Addr::new(10, 99, 0, 1).into(),
        server: Ipv4Addr::new(10, 99, 0, 2).into(),
        no_rdma: Ipv4Addr::new(172, 16, 0, 1).into(),
        nobody: Ipv4Addr::new(10, 99, 0, 77).into(),
        no_route: Ipv4Addr::new(8, 8, 8, 8).into(),
        silent: Ipv4Addr::new(10, 99, 0, 88).into(),
        bonded: [Ipv4Addr::new(10, 97, 0, 1).into(), Ipv4Addr::new(10, 97, 0, 2).into()],
    }
}
