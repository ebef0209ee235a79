//! Checks the list of behaviours, the list of scenarios, and that they agree.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use cmid_conformance::{BEHAVIOURS, Report, entries};

#[test]
fn every_behaviour_is_there_once_and_in_order() {
    assert!(BEHAVIOURS.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert_eq!(BEHAVIOURS.first().map(|behaviour| behaviour.number), Some(1));
}

#[test]
fn a_behaviour_is_shown_or_says_why_not() {
    for behaviour in BEHAVIOURS {
        let shown = entries().iter().any(|entry| entry.behaviours.contains(&behaviour.number));
        assert!(
            shown || !behaviour.elsewhere.is_empty() || !behaviour.remark.is_empty(),
            "behaviour {}",
            behaviour.number
        );
    }
}

#[test]
fn names_are_unique_and_say_their_behaviour() {
    for (at, entry) in entries().iter().enumerate() {
        assert!(entries()[..at].iter().all(|other| other.name != entry.name), "{} twice", entry.name);
        let said =
            entry.name.strip_prefix("behaviour_").map(|rest| rest.split('_').next().and_then(|n| n.parse().ok()));
        assert!(
            said.is_none_or(|behaviour| behaviour.is_some_and(|behaviour| entry.behaviours.contains(&behaviour))),
            "{}",
            entry.name
        );
        assert!(
            entry.behaviours.iter().all(|behaviour| BEHAVIOURS.iter().any(|known| known.number == *behaviour)),
            "{}",
            entry.name
        );
    }
}

#[test]
fn what_disturbs_the_lab_comes_last() {
    let first = entries().iter().position(|entry| !entry.needs.is_empty()).unwrap_or(entries().len());
    assert!(entries()[first..].iter().all(|entry| !entry.needs.is_empty()));
}

/// A fresh clone has no folder for reports. The suite writes one before it runs, so that minutes are not lost.
#[test]
fn a_report_makes_its_folder_and_names_a_file_that_cannot_be_written() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("of a fresh clone");
    let _ = fs::remove_dir_all(&folder);
    let (report, path) = (Report::new("sim"), folder.join("reports/sim.json"));
    report.write(&path).unwrap();
    assert!(Report::recorded(&path).unwrap().scenarios.is_empty());
    let below = path.join("below a file");
    assert!(report.write(&below).unwrap_err().to_string().contains("below a file"));
}
