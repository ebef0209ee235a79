//! The recorded results of both backends of cmid-verbs agree, and the tests named for their differences exist.

use std::fs;

use cmid_conformance::{Report, Speed, entries};
use cmid_harness::references;

use crate::root;

/// The fast scenarios have the same outcome on both backends, with each driver. Slow scenarios are compared if both are
/// recorded.
#[test]
fn recorded_outcomes_of_both_backends_agree() {
    for kernel in ["6.1", "6.12"] {
        let read = |name: &str| Report::read(&root().join(format!("tests/conformance/results/{name}.json"))).unwrap();
        let (librdmacm, on_kernel) = (read(kernel), read(&format!("{kernel}-kernel")));
        let mut compared = 0;
        for entry in entries() {
            let outcomes = |report: &Report| report.scenarios.get(entry.name).map(|found| found.drivers.clone());
            let (ours, theirs) = (outcomes(&on_kernel), outcomes(&librdmacm));
            if entry.speed == Speed::Slow && (ours.is_none() || theirs.is_none()) {
                continue;
            }
            assert_eq!(ours, theirs, "Linux {kernel}: {}", entry.name);
            compared += usize::from(ours.is_some());
        }
        assert!(compared > 100, "Linux {kernel}: {compared} scenarios are recorded for both");
    }
}

#[test]
fn tests_named_for_differences_exist() {
    let text = fs::read_to_string(root().join("docs/generated/differences.md")).unwrap();
    let named: Vec<_> = references::of(&text).collect();
    assert!(!named.is_empty());
    for reference in named {
        references::check(root(), reference).unwrap_or_else(|error| panic!("{reference}: {error:#}"));
    }
}
