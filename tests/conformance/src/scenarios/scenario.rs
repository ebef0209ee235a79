//! A scenario and its description.

use cmid_harness::{Check, Disturbance, Env, Failure, Fixture, Rereg, Speed};
use cmid_proto::Acks;

/// The description of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: what it shows, after `behaviour_N_` where there is one.
    pub name: &'static str,
    /// The behaviours that it shows, completely or in part.
    pub behaviours: &'static [u8],
    /// How long it takes.
    pub speed: Speed,
    /// What the environment must support.
    pub needs: &'static [Disturbance],
    /// How the devices must re-register memory, where that matters.
    pub rereg: Option<Rereg>,
}

impl Entry {
    /// Whether it is fast, possible in `env`, and independent of other scenarios in the same process. Scenarios that
    /// count descriptors and heap are not independent.
    pub fn runs_beside_others(&self, env: &impl Env) -> bool {
        let is_independent = !self.name.starts_with("nothing_is_left");
        self.speed == Speed::Fast && is_independent && self.needs.iter().all(|&need| env.can(need))
    }
}

/// A scenario for any environment.
pub struct Scenario<L: Env> {
    /// The description of the scenario.
    pub entry: Entry,
    /// When events are acked.
    pub(super) acks: Acks,
    pub(super) steps: fn(&mut Fixture<'_, L>) -> Check,
}

impl<L: Env> std::fmt::Debug for Scenario<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry.name)
    }
}

impl<L: Env> Scenario<L> {
    /// Whether the environment supports what it needs.
    pub fn fits(&self, env: &L) -> bool {
        let rereg = self.entry.rereg.is_none_or(|rereg| env.with_rereg(rereg).is_some());
        rereg && self.entry.needs.iter().all(|&need| env.can(need))
    }

    /// Runs the steps with two fresh drivers. Checks both afterwards.
    ///
    /// # Errors
    /// The first difference from the expected results.
    pub fn run(&self, env: &L) -> Result<(), Failure> {
        let own = match self.entry.rereg {
            Some(rereg) => Some(env.with_rereg(rereg).ok_or_else(|| Failure(format!("no such devices: {rereg:?}")))?),
            None => None,
        };
        let env = own.as_ref().unwrap_or(env);
        let mut fixture = Fixture::new(env, self.acks)?;
        (self.steps)(&mut fixture)?;
        fixture.clean()?;
        fixture.pds_are_unused()?;
        env.sound()
    }
}
