//! How a region is changed, and how it was made.

use crate::memory::Provider;

/// Whether work requests in flight name the MR. A work request is in flight from the post until its completion is
/// polled, or until the QP is destroyed and none of its completions is left in its CQs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// No work request is in flight.
    Quiet,
    /// Work requests are in flight. The MR cannot be changed or deregistered.
    InFlight,
}

/// How to re-register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What to do if the provider does not support the change.
    pub fallback: Fallback,
    /// What is known about the provider.
    pub provider: Provider,
}

/// What to do if the provider has no re-registration (rxe, siw, efa, bnxt_re, mana) or does not support this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// No fallback: the request fails with EOPNOTSUPP, and the old registration is valid.
    #[default]
    None,
    /// Makes a new registration with the change, then deregisters the old one. The keys change. If a step fails, the
    /// previous ones are undone and the old registration stays. If undoing fails too, or if the state of the old
    /// registration is unknown after its deregistration, both are kept and the region can only be deregistered.
    Anew,
}

/// How the present registration was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By `ibv_rereg_mr`.
    InPlace,
    /// By `ibv_reg_mr`: the first one, or the fallback.
    Anew,
}
