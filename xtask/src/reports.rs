//! The reports of a suite: those of runs, under `target/`, and the recorded results, which are part of the source; and
//! the documents rendered from them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
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

    /// The path for the report of a new run. Removes an old report, so that it cannot be taken for this run's.
    pub(crate) fn new_report(self, context: &Context, environment: &str, speed: &str) -> Result<PathBuf> {
        let report = self.reports(context)?.join(format!("{environment}-{speed}.json"));
        if report.exists() {
            fs::remove_file(&report).with_context(|| report.display().to_string())?;
        }
        Ok(report)
    }

    /// The directory of the recorded results.
    fn results(self, context: &Context) -> PathBuf {
        context.root.join("tests").join(self.0).join("results")
    }

    /// The arguments for a run: the path of its report, and that of the recorded results, with which it compares it.
    pub(crate) fn arguments(self, context: &Context, environment: &str, speed: &str) -> Result<[OsString; 4]> {
        let recorded = self.results(context).join(format!("{environment}.json"));
        let report = self.new_report(context, environment, speed)?;
        Ok(["--report".into(), report.into(), "--recorded".into(), recorded.into()])
    }

    /// Adds the reports of the last runs to the recorded results, by the suite's program with this argument.
    pub(crate) fn record(self, context: &Context, program: &str, argument: &str) -> Result<()> {
        let (runs, into) = (self.reports(context)?.into_os_string(), self.results(context).into_os_string());
        context.program(program, [argument.into(), runs, into])
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
