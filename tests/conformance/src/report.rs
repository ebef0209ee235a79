//! The outcomes of scenarios, to be recorded and compared with recorded ones.

use std::fmt;

use cmid_harness::DriverName;
use serde::{Deserialize, Serialize};

use cmid_proto::Transport;

use crate::scenarios::entries_on;

/// The outcomes of scenarios in one environment, for each driver.
pub type Report = cmid_harness::Report<Outcome>;

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All results were as expected.
    Passed,
    /// The first difference.
    Failed(String),
    /// The environment cannot do what the scenario needs.
    NotHere,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(reason) => write!(f, "failed ({reason})"),
            Outcome::NotHere => f.write_str("could not run there"),
        }
    }
}

impl cmid_harness::Outcome for Outcome {
    fn passed(&self) -> bool {
        *self == Outcome::Passed
    }

    fn is_current(&self, scenario: &str, driver: &str, _: &str) -> bool {
        let is_driver = DriverName::ALL.iter().any(|known| known.name() == driver);
        let transports = [Transport::InfiniBand, Transport::Iwarp];
        is_driver && transports.into_iter().flat_map(entries_on).any(|entry| entry.name == scenario)
    }
}

#[cfg(test)]
mod tests {
    use cmid_harness::Speed;

    use super::*;
    use crate::scenarios::entries;

    #[test]
    fn scenarios_and_drivers_that_are_no_more_are_forgotten() {
        let (mut report, name) = (Report::new("here"), entries()[0].name);
        for (scenario, driver) in [(name, "mio"), (name, "a driver that went"), ("a scenario that went", "mio")] {
            report.note(scenario, Speed::Fast, driver, Outcome::Passed);
        }
        report.forget_what_is_out_of_date();
        assert_eq!(report.scenarios.keys().collect::<Vec<_>>(), [name]);
        assert_eq!(report.scenarios[name].drivers.keys().collect::<Vec<_>>(), ["mio"]);
    }
}
