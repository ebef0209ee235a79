//! How a region is to be changed, and how it was.

use crate::memory::Provider;

/// Whether work requests in flight name the MR: from the post until the completion is polled, or until the QP is destroyed and
/// none of its completions is left in its CQs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// None.
    Quiet,
    /// Some. They pin it.
    InFlight,
}

/// How to re-register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What to do where the provider cannot.
    pub fallback: Fallback,
    /// What is known of the provider.
    pub provider: Provider,
}

/// What to do where the provider has no re-registration (rxe, siw, efa, bnxt_re, mana) or not this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Nothing: it fails with EOPNOTSUPP and the old registration is valid.
    #[default]
    None,
    /// Register what was asked for, then deregister the old one. The keys change. If a step fails, what was done is undone
    /// and the old one stays. If that fails too, or it is not known what the deregistration of the old one left, both are kept
    /// and the region can only be deregistered.
    Anew,
}

/// How the present registration came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By `ibv_rereg_mr`.
    InPlace,
    /// By `ibv_reg_mr`: the first one, or the fallback.
    Anew,
}
