//! The outcomes of scenarios on a kernel, to be recorded and compared with the expected ones.

use std::fmt;

use cmid_harness::{DriverName, Speed};
use serde::{Deserialize, Serialize};

use crate::entry::agree;
use crate::scenarios::entries;
use crate::{Entry, Expected};

/// The outcomes on one kernel.
pub type Report = cmid_harness::Report<Outcome>;

/// The outcomes of a scenario.
pub type Findings = cmid_harness::Findings<Outcome>;

/// The outcome of a scenario with a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All expected lines were observed, and nothing hung or leaked. Holds the observed lines.
    Passed(Vec<String>),
    /// The first difference or error.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(_) => f.write_str("passed"),
            Outcome::Failed(reason) => write!(f, "failed ({reason})"),
        }
    }
}

impl cmid_harness::Outcome for Outcome {
    fn passed(&self) -> bool {
        matches!(self, Outcome::Passed(_))
    }

    /// An outcome is outdated if the expected lines on this kernel have changed since.
    fn is_current(&self, scenario: &str, _: &str, environment: &str) -> bool {
        let Some(entry) = entries().iter().find(|entry| entry.name == scenario) else { return false };
        match self {
            Outcome::Passed(observed) => agree(&Expected::all_on(entry.observed, environment), observed).is_ok(),
            Outcome::Failed(_) => true,
        }
    }
}

/// The report of a run in which every scenario of this speed has passed with each of these drivers that it is for.
#[must_use]
pub fn expected(speed: Speed, drivers: &[DriverName]) -> Report {
    let mut report = Report::new("expected");
    let is_wanted = |entry: &&Entry| entry.speed == speed;
    for entry in entries().iter().filter(is_wanted) {
        for driver in entry.drivers.names().iter().filter(|driver| drivers.contains(driver)) {
            report.note(entry.name, speed, driver.name(), Outcome::Passed(Vec::new()));
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_when_something_else_was_to_be_told_is_forgotten() {
        let on = |entry: &Entry, kernel| Expected::all_on(entry.observed, kernel);
        let entry = entries().iter().find(|entry| on(entry, "6.1") != on(entry, "6.12"));
        let entry = entry.expect("a scenario of which the kernels note different things");
        let now = on(entry, "6.12").iter().map(|allowed| allowed[0].to_owned()).collect();
        let mut report = Report::new("Linux 6.12.57-amd64, soft-RoCE");
        report.note(entry.name, entry.speed, "epoll", Outcome::Passed(vec!["something else".into()]));
        report.note(entry.name, entry.speed, "mio", Outcome::Passed(now));
        report.forget_what_is_out_of_date();
        assert_eq!(report.scenarios[entry.name].drivers.keys().collect::<Vec<_>>(), ["mio"]);
        report.environment = "Linux 6.1".into();
        report.forget_what_is_out_of_date();
        assert!(report.scenarios.is_empty());
    }

    #[test]
    fn every_scenario_is_expected_with_each_of_its_drivers() {
        let fast = entries().iter().filter(|entry| entry.speed == Speed::Fast);
        let pairs: usize = fast.map(|entry| entry.drivers.names().len()).sum();
        let differences = Report::new("here").differences(&expected(Speed::Fast, &DriverName::PLAIN), Speed::Fast);
        assert_eq!(differences.len(), pairs);
        assert!(pairs > expected(Speed::Fast, &[DriverName::Epoll]).scenarios.len());
    }
}
