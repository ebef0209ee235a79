//! A scenario: its description and its steps.

use cmid_harness::{Check, Env, Failure};

use crate::entry::{Entry, Expected, agree};
use crate::fixture::FaultFixture;
use crate::link::Link;

/// The steps of a scenario.
pub(crate) type Steps<L> = fn(&mut FaultFixture<'_, L>) -> Check;

/// One fault in one phase, and the expected lines.
pub struct Scenario<L: Env> {
    /// The description of the scenario.
    pub entry: Entry,
    pub(crate) steps: Steps<L>,
}

impl<L: Env> std::fmt::Debug for Scenario<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry.name)
    }
}

impl<L: Env> Scenario<L> {
    /// Runs it on a link, and compares the observed lines with those expected in this environment.
    ///
    /// # Errors
    /// The first difference; a leak; the error of a step.
    pub fn run(&self, env: &L, link: &Link, environment: &str) -> Check<Vec<String>> {
        let wanted = Expected::all_on(self.entry.observed, environment);
        let mut fixture = FaultFixture::new(env, link, wanted.clone())?;
        let steps = (self.steps)(&mut fixture);
        let observed = fixture.end().map_err(|failure| Failure(format!("at the end: {failure}")));
        // The error of the steps comes first. The lines observed until then show how far the steps got.
        let so_far = |observed: &[String]| observed.iter().map(|line| format!("\n    {line}")).collect::<String>();
        match (steps, observed) {
            (Ok(()), Ok(observed)) => agree(&wanted, &observed).map(|()| observed),
            (Ok(()), Err(failure)) => Err(failure),
            (Err(failure), Ok(observed)) => {
                Err(Failure(format!("{failure}; observed until then:{}", so_far(&observed))))
            }
            (Err(failure), Err(end)) => Err(Failure(format!("{failure}; {end}"))),
        }
    }
}
