//! Running scenarios, one or all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::{Disturbance, Entry, Env, Report, Scenario, scenarios};

/// What became of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was as expected.
    Passed,
    /// The first thing that was not.
    Failed(String),
    /// The lab cannot do what the scenario needs.
    NotHere,
}

impl<L: Env> Scenario<L> {
    /// Runs it where the lab can do what it needs. A panic is a failure as any other. A device
    /// that it took away is brought back.
    pub fn outcome(&self, env: &L) -> Outcome {
        if !self.fits(env) {
            return Outcome::NotHere;
        }
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.run(env))) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(failure)) => Outcome::Failed(failure.0),
            Err(_) => Outcome::Failed("it panicked".into()),
        };
        if !self.entry.needs.contains(&Disturbance::DeviceGoes) {
            return outcome;
        }
        match (outcome, env.disturb(Disturbance::DeviceComes)) {
            (Outcome::Passed, Err(failure)) => Outcome::Failed(failure.0),
            (outcome, _) => outcome,
        }
    }
}

/// Runs all scenarios that `pick` picks, one after the other, and reports what became of them under the driver's name.
pub fn run<L: Env>(env: &L, driver: &str, report: &mut Report, pick: impl Fn(&Entry) -> bool) {
    for scenario in scenarios::<L>().into_iter().filter(|scenario| pick(&scenario.entry)) {
        report.note(&scenario.entry, driver, scenario.outcome(env));
    }
}
