//! What became of scenarios, to be written down and to be compared with what was written down before.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Check, Entry, Failure, Outcome, Speed};

/// The outcomes of scenarios on one lab, for each driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Where they ran, in words.
    pub environment: String,
    /// By the scenario's name.
    pub scenarios: BTreeMap<String, Findings>,
}

/// What is known of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The rows that it shows.
    pub behaviours: Vec<u8>,
    /// How long it takes.
    pub speed: Speed,
    /// The outcome for each driver.
    pub drivers: BTreeMap<String, Outcome>,
}

impl Findings {
    /// Whether it passed with every driver that it was run with.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.drivers.is_empty() && self.drivers.values().all(|outcome| *outcome == Outcome::Passed)
    }
}

impl Report {
    /// Nothing yet.
    #[must_use]
    pub fn new(environment: impl Into<String>) -> Self {
        Report { environment: environment.into(), scenarios: BTreeMap::new() }
    }

    /// Adds an outcome.
    pub fn note(&mut self, entry: &Entry, driver: &str, outcome: Outcome) {
        let fresh = || Findings { behaviours: entry.behaviours.to_vec(), speed: entry.speed, drivers: BTreeMap::new() };
        let findings = self.scenarios.entry(entry.name.into()).or_insert_with(fresh);
        findings.drivers.insert(driver.into(), outcome);
    }

    /// Adds what another report says, which is newer, and forgets scenarios that are no more.
    pub fn merge(&mut self, newer: Report) {
        self.scenarios.extend(newer.scenarios);
        let entries = crate::entries();
        self.scenarios.retain(|name, _| entries.iter().any(|entry| entry.name == name));
    }

    /// Where this run of the scenarios of one speed came out otherwise than recorded. What a failure says is not compared.
    #[must_use]
    pub fn differences(&self, recorded: &Report, speed: Speed) -> Vec<Difference> {
        let of = |report: &Report| -> BTreeMap<(String, String), Outcome> {
            let findings = report.scenarios.iter().filter(|(_, findings)| findings.speed == speed);
            findings
                .flat_map(|(name, findings)| {
                    findings.drivers.iter().map(|(driver, outcome)| ((name.clone(), driver.clone()), outcome.clone()))
                })
                .collect()
        };
        let (seen, recorded) = (of(self), of(recorded));
        let mut keys: Vec<_> = seen.keys().chain(recorded.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let kind = |outcome: Option<&Outcome>| outcome.map(std::mem::discriminant);
        keys.into_iter()
            .filter(|&key| kind(seen.get(key)) != kind(recorded.get(key)))
            .map(|key| Difference {
                scenario: key.0.clone(),
                driver: key.1.clone(),
                recorded: recorded.get(key).cloned(),
                seen: seen.get(key).cloned(),
            })
            .collect()
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

/// A scenario that came out otherwise than recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which scenario.
    pub scenario: String,
    /// On which driver.
    pub driver: String,
    /// What is recorded.
    pub recorded: Option<Outcome>,
    /// What was seen.
    pub seen: Option<Outcome>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |outcome: &Option<Outcome>| match outcome {
            None => "did not run".to_owned(),
            Some(Outcome::Passed) => "passed".to_owned(),
            Some(Outcome::Failed(reason)) => format!("failed ({reason})"),
            Some(Outcome::NotHere) => "could not run there".to_owned(),
        };
        write!(
            f,
            "{} on {}: {}, while it is recorded that it {}",
            self.scenario,
            self.driver,
            words(&self.seen),
            words(&self.recorded)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Entry = Entry { name: "fast", behaviours: &[1], speed: Speed::Fast, needs: &[], rereg: None };
    const SLOW: Entry = Entry { name: "slow", behaviours: &[29], speed: Speed::Slow, needs: &[], rereg: None };

    #[test]
    fn what_failed_or_did_not_run_is_a_difference_and_the_other_speed_is_none_of_it() {
        let mut recorded = Report::new("here");
        recorded.note(&FAST, "mio", Outcome::Passed);
        recorded.note(&FAST, "epoll", Outcome::Passed);
        recorded.note(&SLOW, "mio", Outcome::Passed);
        let mut seen = Report::new("here");
        assert_eq!(seen.differences(&recorded, Speed::Fast).len(), 2);
        seen.note(&FAST, "mio", Outcome::Passed);
        seen.note(&FAST, "epoll", Outcome::Failed("why".into()));
        let differences = seen.differences(&recorded, Speed::Fast);
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].to_string(), "fast on epoll: failed (why), while it is recorded that it passed");
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = Report::new("here");
        report.note(&FAST, "mio", Outcome::Failed("why".into()));
        report.note(&SLOW, "mio", Outcome::NotHere);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
