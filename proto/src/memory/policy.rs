//! How a region is re-registered, and how its registration was made.

use crate::memory::Provider;

/// What may still use the MR: work requests in flight that name it, or a memory window. A work request is in flight from its post until its completion is
/// polled. If its QP is destroyed first, it is in flight until no completion of the QP is left in the CQs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Nothing uses it.
    Quiet,
    /// Work requests are in flight. The MR cannot be changed or deregistered.
    InFlight,
    /// A memory window may be bound to the MR (`Bindings`). The MR cannot be changed or
    /// deregistered.
    WindowBound,
}

/// How to re-register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The action if the provider does not support the change.
    pub fallback: Fallback,
    /// The order of checks and changes in the provider.
    pub provider: Provider,
}

/// The action if the provider has no re-registration (rxe, siw, efa, bnxt_re, mana) or does not support this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// No fallback: the request fails with EOPNOTSUPP, and the old registration is valid.
    #[default]
    None,
    /// Makes a new registration with the change, then deregisters the old one. The keys change. If a step fails, the
    /// earlier steps are undone and the old registration stays valid. If undoing fails too, or if the old registration
    /// is in an unknown state after its deregistration, the region keeps both registrations and can only be
    /// deregistered.
    Anew,
}

/// How the present registration was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By `ibv_rereg_mr`.
    InPlace,
    /// By `ibv_reg_mr`: the first registration, or the fallback.
    Anew,
}
