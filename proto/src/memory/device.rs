//! The calls to the device, and what names its things.

use crate::memory::{Access, Change};

/// The keys of a registration. A re-registration may change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    /// For work requests of this side.
    pub lkey: u32,
    /// For RDMA reads and writes of the peer.
    pub rkey: u32,
}

/// A device call to be made. Report what it returned to
/// [`Region::handle_outcome`](crate::memory::Region::handle_outcome).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call<'a, P, B, H> {
    /// `ibv_reg_mr`.
    Register {
        /// The PD.
        pd: &'a P,
        /// The memory.
        buffer: &'a B,
        /// What may be done with it.
        access: Access,
    },
    /// `ibv_rereg_mr`.
    Reregister {
        /// The registration.
        handle: &'a H,
        /// What is to be different.
        change: &'a Change<P, B>,
    },
    /// `ibv_dereg_mr`.
    Deregister {
        /// The registration, which is gone if the call succeeds.
        handle: &'a H,
    },
}
