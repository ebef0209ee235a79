//! Runs scenarios, one or all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cmid_harness::{Disturbance, Env};

use crate::report::{Outcome, Report};
use crate::scenarios::{Entry, Scenario, scenarios};

impl<L: Env> Scenario<L> {
    /// Runs the scenario if the environment supports what it needs. A panic is a failure. A device that the scenario
    /// has removed is added again.
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

/// Runs all scenarios for which `pick` returns true, one after the other. Reports the outcomes under the driver's
/// name.
pub fn run<L: Env>(env: &L, driver: &str, report: &mut Report, pick: impl Fn(&Entry) -> bool) {
    for scenario in scenarios::<L>().into_iter().filter(|scenario| pick(&scenario.entry)) {
        let Entry { name, speed, .. } = scenario.entry;
        report.note(name, speed, driver, scenario.outcome(env));
    }
}
