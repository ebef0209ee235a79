//! The reports of a suite: those of runs, under `target/`, and the recorded results, which are part of the source; and
//! the documents rendered from them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_harness::{Outcome, Report, Speed};
use cmid_softroce::packages;

use crate::context::Context;
use crate::scripts;

/// A suite, by the name of its folder in `tests/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite(pub(crate) &'static str);

impl Suite {
    /// The directory of the reports of runs.
    pub(crate) fn reports(self, context: &Context) -> Result<PathBuf> {
        let directory = context.target().join(format!("{}-reports", self.0));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(directory)
    }

    fn report(self, context: &Context, environment: &str, speed: Speed) -> Result<PathBuf> {
        Ok(self.reports(context)?.join(format!("{environment}-{}.json", speed.name())))
    }

    /// The path for the report of a new run. Removes an old report, so that it cannot be taken for this run's.
    pub(crate) fn new_report(self, context: &Context, environment: &str, speed: Speed) -> Result<PathBuf> {
        let report = self.report(context, environment, speed)?;
        if report.exists() {
            fs::remove_file(&report).with_context(|| report.display().to_string())?;
        }
        Ok(report)
    }

    fn recorded_path(self, context: &Context, environment: &str) -> PathBuf {
        context.root.join("tests").join(self.0).join("results").join(format!("{environment}.json"))
    }

    /// The recorded results of an environment, if there are any.
    pub(crate) fn recorded<O: Outcome>(self, context: &Context, environment: &str) -> Result<Option<Report<O>>> {
        let path = self.recorded_path(context, environment);
        Ok(if path.exists() { Some(Report::read(&path)?) } else { None })
    }

    /// Compares the report of a run, which had this result, with the expected outcomes.
    pub(crate) fn conclude<O: Outcome>(
        self,
        context: &Context,
        environment: &str,
        speed: Speed,
        result: Result<()>,
        expected: &Report<O>,
    ) -> Result<()> {
        let path = self.report(context, environment, speed)?;
        if !path.exists() {
            result?;
            bail!("the run left no report at {}", path.display());
        }
        let run = Report::read(&path)?;
        println!("{}: {} scenarios ran", run.environment, run.scenarios.len());
        // A scenario that did not run has not passed.
        let differences = run.differences(expected, speed);
        differences.iter().for_each(|difference| println!("{difference}"));
        result?;
        ensure!(
            differences.is_empty(),
            "{} outcomes are not as expected; if tests/{}/results should have them: cargo xtask record",
            differences.len(),
            self.0
        );
        Ok(())
    }

    /// Makes the reports of the last runs in these environments the recorded results.
    pub(crate) fn record<O: Outcome>(self, context: &Context, environments: &[String]) -> Result<()> {
        for environment in environments {
            let mut results = self.recorded::<O>(context, environment)?.unwrap_or_else(|| Report::new(environment));
            results.forget_what_is_out_of_date();
            for speed in [Speed::Fast, Speed::Slow] {
                let path = self.report(context, environment, speed)?;
                if path.exists() {
                    let run = Report::read(&path)?;
                    println!("{} in {environment}, {}: {} scenarios", self.0, speed.name(), run.scenarios.len());
                    results.merge(run);
                }
            }
            if !results.scenarios.is_empty() {
                let path = self.recorded_path(context, environment);
                fs::create_dir_all(path.parent().context("a file of the source")?)?;
                results.write(&path)?;
            }
        }
        Ok(())
    }
}

/// The packages with tests called `documents`, which compare `docs/generated/` with its sources.
const PACKAGES: [&str; 6] =
    ["cmid-check", "cmid-proto", "cmid-conformance", "cmid-faults", "cmid-differential", "cmid-bench"];

/// Runs these tests so that they write the files, and draws the pictures.
pub(crate) fn render(context: &Context) -> Result<()> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let arguments = ["test", "--quiet", "--test", "documents"].into_iter().chain(packages);
    context.cargo(&arguments.collect::<Vec<_>>(), &[("UPDATE_EXPECT", "1".as_ref())])?;
    packages::ensure(&["graphviz"])?;
    scripts::on_host(context, "pictures.sh")
}
