//! The documents rendered from recorded results, and the record of the outcomes of the last runs.

use std::fs;

use anyhow::{Context as _, Result};

use crate::context::Context;

/// The packages with tests called `documents`, which compare `docs/generated/` with its sources.
const PACKAGES: [&str; 6] =
    ["cmid-check", "cmid-proto", "cmid-conformance", "cmid-faults", "cmid-differential", "cmid-bench"];

/// Runs these tests so that they write the files, and draws the pictures.
pub(crate) fn render(context: &Context) -> Result<()> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let arguments = ["test", "--quiet", "--test", "documents"].into_iter().chain(packages);
    context.cargo(&arguments.collect::<Vec<_>>(), &[("UPDATE_EXPECT", "1".as_ref())])?;
    context.script("pictures.sh", &["graphviz"])
}

/// Makes the outcomes of the last runs of conformance, faults and cmid-check the recorded ones, and renders them.
pub(crate) fn record(context: &Context) -> Result<()> {
    for (suite, program, argument) in [
        ("conformance", "--package cmid-conformance --bin conformance", "--record"),
        ("faults", "--package cmid-faults --features verbs", "record"),
    ] {
        let runs = context.target().join(format!("{suite}-reports"));
        fs::create_dir_all(&runs).with_context(|| runs.display().to_string())?;
        let into = context.root.join("tests").join(suite).join("results");
        context.program(program, [argument.into(), runs.into_os_string(), into.into_os_string()])?;
    }
    let reports = context.target().join("check-reports");
    for entry in fs::read_dir(&reports).into_iter().flatten() {
        let path = entry?.path();
        let recorded = context.root.join("verbs/check/results").join(path.file_name().context("a file has a name")?);
        fs::copy(&path, &recorded).with_context(|| recorded.display().to_string())?;
        println!("cmid-check: {}", recorded.display());
    }
    render(context)
}
