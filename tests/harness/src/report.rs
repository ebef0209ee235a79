//! The outcomes of a run, as JSON, and their differences from expected outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirEntry};
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Check, Failure};

/// The duration class of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// Seconds.
    Fast,
    /// Minutes of real time, because the scenario waits for timeouts of a kernel.
    Slow,
}

impl Speed {
    /// Returns the name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Speed::Fast => "fast",
            Speed::Slow => "slow",
        }
    }
}

/// The outcome of a scenario with a driver: an enum of the suite. Its `Display` is a phrase such as `passed` or `failed
/// (reason)`.
pub trait Outcome: Clone + fmt::Display + Serialize + DeserializeOwned {
    /// Whether the scenario passed.
    fn passed(&self) -> bool;

    /// Whether the suite still has this scenario, runs it with this driver, and has the same expectation in this
    /// environment.
    fn is_current(&self, scenario: &str, driver: &str, environment: &str) -> bool;
}

/// The outcomes of scenarios in one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report<O> {
    /// A description of the environment.
    pub environment: String,
    /// The outcomes, by the scenario's name.
    pub scenarios: BTreeMap<String, Findings<O>>,
}

/// The outcomes of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings<O> {
    /// The duration class.
    pub speed: Speed,
    /// The outcome with each driver.
    pub drivers: BTreeMap<String, O>,
}

impl<O: Outcome> Findings<O> {
    /// Whether the scenario passed with every driver that it ran with.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.drivers.is_empty() && self.drivers.values().all(O::passed)
    }
}

impl<O: Outcome> Report<O> {
    /// Creates a report without outcomes.
    #[must_use]
    pub fn new(environment: impl Into<String>) -> Self {
        Report { environment: environment.into(), scenarios: BTreeMap::new() }
    }

    /// Adds an outcome.
    pub fn note(&mut self, scenario: &str, speed: Speed, driver: &str, outcome: O) {
        let fresh = || Findings { speed, drivers: BTreeMap::new() };
        self.scenarios.entry(scenario.into()).or_insert_with(fresh).drivers.insert(driver.into(), outcome);
    }

    /// Adds the outcomes of a newer report, and removes outcomes that are not current any more.
    pub fn merge(&mut self, newer: Report<O>) {
        self.environment = newer.environment;
        for (name, findings) in newer.scenarios {
            let known = self.scenarios.entry(name).or_insert_with(|| findings.clone());
            known.speed = findings.speed;
            known.drivers.extend(findings.drivers);
        }
        self.forget_what_is_out_of_date();
    }

    /// Removes outcomes that are not current any more.
    pub fn forget_what_is_out_of_date(&mut self) {
        let environment = &self.environment;
        self.scenarios.retain(|name, findings| {
            findings.drivers.retain(|driver, outcome| outcome.is_current(name, driver, environment));
            !findings.drivers.is_empty()
        });
    }

    /// Adds the reports of runs, the files ENVIRONMENT-SPEED.json in the folder `runs`, to the recorded outcomes of their
    /// environments, ENVIRONMENT.json in the folder `into`. Returns a line for each report.
    ///
    /// # Errors
    /// A file cannot be read or written, or is not a report.
    pub fn record(runs: &Path, into: &Path) -> Check<Vec<String>> {
        let mut environments: BTreeMap<String, Vec<PathBuf>> =
            reports(into)?.into_keys().map(|name| (name, Vec::new())).collect();
        for (name, path) in reports(runs)? {
            let speeds = [Speed::Fast, Speed::Slow];
            let environment = speeds.iter().find_map(|speed| name.strip_suffix(speed.name())?.strip_suffix('-'));
            let environment = environment.ok_or_else(|| {
                Failure(format!(
                    "{}: a report is called ENVIRONMENT-fast.json or ENVIRONMENT-slow.json",
                    path.display()
                ))
            })?;
            environments.entry(environment.into()).or_default().push(path);
        }
        let mut said = Vec::new();
        for (environment, runs) in environments {
            let path = into.join(format!("{environment}.json"));
            let mut recorded = Self::recorded(&path)?;
            recorded.forget_what_is_out_of_date();
            for run in runs {
                said.push(format!("{} is recorded in {}", run.display(), path.display()));
                recorded.merge(Self::read(&run)?);
            }
            if !recorded.scenarios.is_empty() {
                recorded.write(&path)?;
            }
        }
        Ok(said)
    }

    /// Compares the outcomes of one speed with expected ones.
    ///
    /// # Errors
    /// The differences, one a line.
    pub fn compare(&self, expected: &Report<O>, speed: Speed) -> Check {
        let differences = self.differences(expected, speed);
        if differences.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<_> = differences.iter().map(Difference::to_string).collect();
        let count = lines.len();
        lines.push(format!(
            "{count} outcomes are not as expected; if they should be the recorded ones: cargo xtask record"
        ));
        Err(Failure(lines.join("\n")))
    }

    /// Returns the scenarios of one speed with outcomes of another kind than expected. Texts of failures are not
    /// compared.
    #[must_use]
    pub fn differences(&self, expected: &Report<O>, speed: Speed) -> Vec<Difference<O>> {
        let (seen, expected) = (self.outcomes(speed), expected.outcomes(speed));
        let mut keys: Vec<_> = seen.keys().chain(expected.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let get = |of: &BTreeMap<_, &O>, key| of.get(key).map(|&outcome| outcome.clone());
        keys.into_iter()
            .filter(|&key| seen.get(key).map(|it| discriminant(*it)) != expected.get(key).map(|it| discriminant(*it)))
            .map(|key| Difference {
                scenario: key.0.into(),
                driver: key.1.into(),
                expected: get(&expected, key),
                seen: get(&seen, key),
            })
            .collect()
    }

    /// Returns the outcomes of one speed by scenario and driver.
    fn outcomes(&self, speed: Speed) -> BTreeMap<(&str, &str), &O> {
        let of_speed = self.scenarios.iter().filter(|(_, findings)| findings.speed == speed);
        let each = of_speed.flat_map(|(name, findings)| findings.drivers.iter().map(move |found| (name, found)));
        each.map(|(name, (driver, outcome))| ((name.as_str(), driver.as_str()), outcome)).collect()
    }

    /// Reads a report.
    ///
    /// # Errors
    /// The file cannot be read, or is not a report.
    pub fn read(path: &Path) -> Check<Self> {
        let text = fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        serde_json::from_str(&text).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    /// Reads recorded outcomes. There are none if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is not a report.
    pub fn recorded(path: &Path) -> Check<Self> {
        if path.exists() { Self::read(path) } else { Ok(Self::new("not recorded")) }
    }

    /// Writes the report, into a folder that it makes if there is none. A suite does so before its run too, so that the run is not
    /// in vain.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Check {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure(error.to_string()))? + "\n";
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
        written.map_err(|error| Failure(format!("{}: {error}", path.display())))
    }
}

/// The JSON files in a folder, by their names without the extension, in the order of the names.
fn reports(folder: &Path) -> Check<BTreeMap<String, PathBuf>> {
    let failure = |error| Failure(format!("{}: {error}", folder.display()));
    let entries = fs::read_dir(folder).map_err(failure)?.collect::<Result<Vec<_>, _>>().map_err(failure)?;
    let paths = entries.iter().map(DirEntry::path).filter(|path| path.extension() == Some("json".as_ref()));
    Ok(paths.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).collect())
}

/// A scenario with an outcome of another kind than expected. `None`: no such run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference<O> {
    /// The scenario.
    pub scenario: String,
    /// The driver.
    pub driver: String,
    /// The expected outcome.
    pub expected: Option<O>,
    /// The outcome of the run.
    pub seen: Option<O>,
}

impl<O: Outcome> fmt::Display for Difference<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |outcome: &Option<O>| outcome.as_ref().map_or_else(|| "did not run".to_owned(), O::to_string);
        let (seen, expected) = (words(&self.seen), words(&self.expected));
        write!(f, "{} on {}: {seen}; expected: {expected}", self.scenario, self.driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    enum Known {
        Passed,
        Failed(String),
    }

    impl fmt::Display for Known {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Known::Passed => f.write_str("passed"),
                Known::Failed(reason) => write!(f, "failed ({reason})"),
            }
        }
    }

    impl Outcome for Known {
        fn passed(&self) -> bool {
            *self == Known::Passed
        }

        fn is_current(&self, scenario: &str, driver: &str, environment: &str) -> bool {
            scenario != "gone" && driver != "gone" && environment == "there"
        }
    }

    #[test]
    fn what_failed_or_did_not_run_is_a_difference_and_the_other_speed_is_none_of_it() {
        let mut expected = Report::new("here");
        expected.note("fast", Speed::Fast, "mio", Known::Passed);
        expected.note("fast", Speed::Fast, "epoll", Known::Passed);
        expected.note("slow", Speed::Slow, "mio", Known::Passed);
        let mut seen = Report::new("here");
        assert_eq!(seen.differences(&expected, Speed::Fast).len(), 2);
        seen.note("fast", Speed::Fast, "mio", Known::Passed);
        seen.note("fast", Speed::Fast, "epoll", Known::Failed("why".into()));
        let differences = seen.differences(&expected, Speed::Fast);
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].to_string(), "fast on epoll: failed (why); expected: passed");
        let failure = seen.compare(&expected, Speed::Fast).unwrap_err();
        assert!(failure.0.starts_with("fast on epoll: failed (why); expected: passed\n1 outcomes"), "{failure}");
        assert!(!seen.scenarios["fast"].passed());
        // A failure with another reason is an outcome of the same kind.
        expected.note("fast", Speed::Fast, "epoll", Known::Failed("another".into()));
        assert_eq!(seen.differences(&expected, Speed::Fast), []);
        assert_eq!(seen.compare(&expected, Speed::Fast), Ok(()));
        // A scenario without an expected outcome is a difference.
        seen.note("new", Speed::Fast, "mio", Known::Passed);
        assert_eq!(seen.differences(&expected, Speed::Fast).len(), 1);
    }

    #[test]
    fn a_newer_report_replaces_the_outcomes_it_has_and_what_is_not_current_goes() {
        let (mut known, mut newer) = (Report::new("here"), Report::new("there"));
        known.note("one", Speed::Slow, "mio", Known::Passed);
        known.note("one", Speed::Slow, "epoll", Known::Passed);
        known.note("one", Speed::Slow, "gone", Known::Passed);
        known.note("gone", Speed::Fast, "mio", Known::Passed);
        newer.note("one", Speed::Fast, "mio", Known::Failed("why".into()));
        known.merge(newer);
        let mut left = Report::new("there");
        left.note("one", Speed::Fast, "mio", Known::Failed("why".into()));
        left.note("one", Speed::Fast, "epoll", Known::Passed);
        assert_eq!(known, left);
    }

    #[test]
    fn the_reports_of_runs_are_added_to_the_records_of_their_environments() {
        let folder = tempfile::tempdir().unwrap();
        let [runs, into] = ["runs", "into"].map(|name| folder.path().join(name));
        let report = |scenario: &str, speed, outcome| {
            let mut report = Report::new("there");
            report.note(scenario, speed, "mio", outcome);
            report
        };
        report("kept", Speed::Fast, Known::Passed).write(&into.join("6.12.json")).unwrap();
        report("gone", Speed::Fast, Known::Passed).write(&into.join("6.1.json")).unwrap();
        report("slow", Speed::Slow, Known::Passed).write(&runs.join("6.12-slow.json")).unwrap();
        report("new", Speed::Fast, Known::Passed).write(&runs.join("siw-6.12-kernel-fast.json")).unwrap();
        fs::write(runs.join("6.12-slow.log"), "what it said").unwrap();
        assert_eq!(Report::<Known>::record(&runs, &into).unwrap().len(), 2);
        let recorded = |name: &str| Report::<Known>::recorded(&into.join(name)).unwrap();
        assert_eq!(recorded("6.12.json").scenarios.keys().collect::<Vec<_>>(), ["kept", "slow"]);
        assert_eq!(recorded("siw-6.12-kernel.json"), report("new", Speed::Fast, Known::Passed));
        // A record of which nothing is left stays as it is.
        assert_eq!(recorded("6.1.json"), report("gone", Speed::Fast, Known::Passed));
        assert!(recorded("7.0.json").scenarios.is_empty());
        fs::write(runs.join("else.json"), "{}").unwrap();
        assert!(Report::<Known>::record(&runs, &into).is_err());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = Report::new("here");
        report.note("fast", Speed::Fast, "mio", Known::Failed("why".into()));
        report.note("slow", Speed::Slow, "mio", Known::Passed);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report<Known>>(&text).unwrap(), report);
    }
}
