//! The bounds of a world: its objects and the possible actions.

use cmid_proto::memory::{Fallback, Provider};

use super::witness::Witness;

/// A bounded world. Within the bounds all actions may occur in any order and any number of times, but a deallocated
/// PD stays deallocated.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its name in the report.
    pub name: &'static str,
    /// The subject of the check.
    pub target: &'static str,
    /// The number of PDs.
    pub pds: usize,
    /// Maximum number of regions at a time.
    pub mrs: usize,
    /// The number of buffers.
    pub buffers: usize,
    /// The known properties of the provider.
    pub provider: Provider,
    /// The possible results of a failed re-registration, if the provider is not known to check first.
    pub truths: &'static [Truth],
    /// Whether a deregistration may fail with an unknown result.
    pub losses: bool,
    /// Whether the PDs are allocated initially.
    pub allocated: bool,
    /// The fallbacks that the application may choose if the provider does not support a change.
    pub fallbacks: &'static [Fallback],
    /// Whether access rights are changed.
    pub rights: bool,
    /// Whether several properties are changed at once.
    pub together: bool,
    /// Whether the device may be removed.
    pub removal: bool,
    /// Witnesses that must occur; otherwise the check is vacuous.
    pub shows: &'static [Witness],
}

/// The registration at the device after a failed re-registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The old registration.
    Old,
    /// The new one.
    New,
    /// Either of the two.
    Either,
}
