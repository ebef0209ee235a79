//! Renders `docs/generated/platforms.md`: where the suite ran, from the recorded results.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use cmid_conformance::{Outcome, Report, Speed};
use expect_test::expect_file;

use crate::root;

/// The folders of recorded results, with the system that they are of.
const SYSTEMS: [(&str, &str); 2] = [("", "Debian 12, rdma-core 44"), ("debian-13", "Debian 13, rdma-core 56")];

const HEAD: &str = "\
# Where the conformance suite ran

Rendered from the recorded results in `tests/conformance/results/`. A scenario counts once, whatever the number of drivers. Devices that
`cmid-check` ran on: [docs/devices.md](../devices.md). Faults: [faults.md](faults.md).

| system | environment | drivers | passed | of them slow | not possible there | failed |
| --- | --- | --- | --- | --- | --- | --- |
";

#[test]
fn platforms_are_rendered_from_the_results() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generated/platforms.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = HEAD.to_owned();
    let mut failures = String::new();
    for (folder, system) in SYSTEMS {
        for file in files(folder) {
            let report: Report = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            line(&mut text, if report.environment.contains("soft-") { system } else { "any" }, &report);
            failed(&mut failures, system, &report);
        }
    }
    if !failures.is_empty() {
        write!(text, "\n## Failed\n\n{failures}").unwrap();
    }
    text
}

/// Lists the scenarios that failed.
fn failed(text: &mut String, system: &str, report: &Report) {
    for (name, findings) in &report.scenarios {
        let failed = findings.drivers.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let drivers: Vec<_> = failed.map(|(driver, _)| driver.as_str()).collect();
        if !drivers.is_empty() {
            writeln!(text, "- {system}, {}: `{name}` ({})", report.environment, drivers.join(", ")).unwrap();
        }
    }
}

/// The recorded results of a system, by name.
fn files(folder: &str) -> BTreeSet<PathBuf> {
    let folder = root().join("tests/conformance/results").join(folder);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files =
        files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    files.collect()
}

fn line(text: &mut String, system: &str, report: &Report) {
    let (mut passed, mut slow, mut impossible, mut failed) = (0, 0, 0, 0);
    let mut drivers = BTreeSet::new();
    for findings in report.scenarios.values() {
        drivers.extend(findings.drivers.keys().map(String::as_str));
        let any = |wanted: fn(&Outcome) -> bool| findings.drivers.values().any(wanted);
        if any(|outcome| matches!(outcome, Outcome::Failed(_))) {
            failed += 1;
        } else if any(|outcome| *outcome != Outcome::NotHere) {
            passed += 1;
            slow += usize::from(findings.speed == Speed::Slow);
        } else {
            impossible += 1;
        }
    }
    let drivers: Vec<_> = drivers.into_iter().collect();
    let environment = &report.environment;
    writeln!(
        text,
        "| {system} | {environment} | {} | {passed} | {slow} | {impossible} | {failed} |",
        drivers.join(", ")
    )
    .unwrap();
}
