//! What became of scenarios on a kernel, to be written down and to be compared with what was written down before.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use cmid_conformance::{Check, DriverName, Failure};
use serde::{Deserialize, Serialize};

use crate::entry::{Speed, agree};
use crate::{Entry, Told, entries};

/// The outcomes on one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Where they ran, in words.
    pub environment: String,
    /// By the scenario's name.
    pub scenarios: BTreeMap<String, Findings>,
}

/// What became of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// When it runs.
    pub speed: Speed,
    /// The outcome with each driver.
    pub drivers: BTreeMap<String, Outcome>,
}

impl Findings {
    /// Without what has passed when something else was to be told on this kernel: that has not been shown.
    fn up_to_date(&self, entry: &Entry, kernel: &str) -> Self {
        let wanted = Told::all_on(entry.observed, kernel);
        let holds = |outcome: &Outcome| match outcome {
            Outcome::Passed(observed) => agree(&wanted, observed).is_ok(),
            Outcome::Failed(_) => true,
        };
        let drivers = self.drivers.iter().filter(|(_, outcome)| holds(outcome));
        Findings {
            speed: self.speed,
            drivers: drivers.map(|(name, outcome)| (name.clone(), outcome.clone())).collect(),
        }
    }

    /// Whether it passed with every driver that it ran with.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.drivers.is_empty() && self.drivers.values().all(|outcome| matches!(outcome, Outcome::Passed(_)))
    }
}

/// What became of it with a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Told was what was to be told, and nothing hung or leaked. What, where there is a choice.
    Passed(Vec<String>),
    /// The first thing that was not so.
    Failed(String),
}

impl Report {
    /// Nothing yet.
    #[must_use]
    pub fn new(environment: impl Into<String>) -> Self {
        Report { environment: environment.into(), scenarios: BTreeMap::new() }
    }

    /// Adds an outcome.
    pub fn note(&mut self, name: &str, speed: Speed, driver: &str, outcome: Outcome) {
        let findings =
            self.scenarios.entry(name.into()).or_insert_with(|| Findings { speed, drivers: BTreeMap::new() });
        findings.drivers.insert(driver.into(), outcome);
    }

    /// Adds what another report of this kernel says, which is newer.
    pub fn merge(&mut self, newer: Report, kernel: &str) {
        self.environment = newer.environment;
        for (name, findings) in newer.scenarios {
            let known = self.scenarios.entry(name).or_insert_with(|| findings.clone());
            known.speed = findings.speed;
            known.drivers.extend(findings.drivers);
        }
        self.forget_what_is_out_of_date(kernel);
    }

    /// Forgets scenarios that are no more, and what has passed when something else was to be told.
    pub fn forget_what_is_out_of_date(&mut self, kernel: &str) {
        self.scenarios.retain(|name, findings| {
            let entry = entries().iter().find(|entry| entry.name == name);
            entry.is_some_and(|entry| {
                *findings = findings.up_to_date(entry, kernel);
                !findings.drivers.is_empty()
            })
        });
    }

    /// Which scenarios of this speed failed, or are in the list for one of these drivers and did not run with it.
    #[must_use]
    pub fn differences(&self, speed: Speed, drivers: &[DriverName]) -> Vec<Difference> {
        let mut differences = Vec::new();
        for entry in entries().iter().filter(|entry| entry.speed == speed) {
            for driver in entry.drivers.names().iter().filter(|driver| drivers.contains(driver)) {
                let found = self.scenarios.get(entry.name).and_then(|findings| findings.drivers.get(driver.name()));
                let reason = match found {
                    Some(Outcome::Passed(_)) => continue,
                    Some(Outcome::Failed(reason)) => reason.clone(),
                    None => "did not run".to_owned(),
                };
                differences.push(Difference { scenario: entry.name, driver: driver.name(), reason });
            }
        }
        differences
    }

    /// Reads a report.
    ///
    /// # Errors
    /// No such file, or no such report.
    pub fn read(path: &Path) -> Check<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        serde_json::from_str(&text).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    /// Writes it.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, path: &Path) -> Check {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure(error.to_string()))? + "\n";
        std::fs::write(path, text).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }
}

/// A scenario that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub scenario: &'static str,
    /// With which driver.
    pub driver: &'static str,
    /// What came instead.
    pub reason: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}: {}", self.scenario, self.driver, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_when_something_else_was_to_be_told_is_forgotten() {
        let entry = &entries()[0];
        let now = entry
            .observed
            .iter()
            .flat_map(|observed| observed.on("6.12").first().map(|line| (*line).to_owned()))
            .collect();
        let (mut report, mut newer) = (Report::new("here"), Report::new("here"));
        report.note(entry.name, entry.speed, "epoll", Outcome::Passed(vec!["something else".into()]));
        newer.note(entry.name, entry.speed, "mio", Outcome::Passed(now));
        report.merge(newer, "6.12");
        let left: Vec<_> = report.scenarios[entry.name].drivers.keys().collect();
        assert_eq!(left, ["mio"]);
    }

    #[test]
    fn what_failed_or_did_not_run_is_a_difference() {
        let mut report = Report::new("here");
        let fast: Vec<_> = entries().iter().filter(|entry| entry.speed == Speed::Fast).collect();
        let pairs: usize = fast.iter().map(|entry| entry.drivers.names().len()).sum();
        assert_eq!(report.differences(Speed::Fast, &DriverName::ALL).len(), pairs);
        for entry in &fast {
            for driver in entry.drivers.names() {
                report.note(entry.name, entry.speed, driver.name(), Outcome::Passed(Vec::new()));
            }
        }
        assert_eq!(report.differences(Speed::Fast, &DriverName::ALL), []);
        report.note(fast[0].name, Speed::Fast, fast[0].drivers.names()[0].name(), Outcome::Failed("why".into()));
        assert_eq!(report.differences(Speed::Fast, &DriverName::ALL).len(), 1);
    }
}
