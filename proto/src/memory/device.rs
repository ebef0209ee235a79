//! Device calls of a region, and the keys of a registration.

use crate::memory::{Access, Change};

/// The keys of a registration. A re-registration may change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    /// For local work requests.
    pub lkey: u32,
    /// For RDMA reads and writes of the peer.
    pub rkey: u32,
}

/// A device call to make. Report its result to [`Region::handle_outcome`](crate::memory::Region::handle_outcome).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryCall<'a, P, B, H> {
    /// `ibv_reg_mr`.
    Register {
        /// The PD.
        pd: &'a P,
        /// The memory.
        buffer: &'a B,
        /// The access rights.
        access: Access,
    },
    /// `ibv_rereg_mr`.
    Reregister {
        /// The registration.
        handle: &'a H,
        /// The changes.
        change: &'a Change<P, B>,
    },
    /// `ibv_dereg_mr`.
    Deregister {
        /// The registration; it is gone if the call succeeds.
        handle: &'a H,
    },
}
