//! Checks the list of rows, the list of scenarios, and that they agree.

use cmid_conformance::{BEHAVIOURS, entries};

#[test]
fn every_row_is_there_once_and_in_order() {
    assert!(BEHAVIOURS.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert_eq!(BEHAVIOURS.first().map(|row| row.number), Some(1));
    assert_eq!(BEHAVIOURS.last().map(|row| row.number), Some(126));
}

#[test]
fn a_row_is_shown_or_says_why_not() {
    for row in BEHAVIOURS {
        let shown = entries().iter().any(|entry| entry.behaviours.contains(&row.number));
        assert!(shown || !row.elsewhere.is_empty() || !row.remark.is_empty(), "row {}", row.number);
    }
}

#[test]
fn names_are_unique_and_say_their_row() {
    for (at, entry) in entries().iter().enumerate() {
        assert!(entries()[..at].iter().all(|other| other.name != entry.name), "{} twice", entry.name);
        let said = entry.name.strip_prefix("row_").map(|rest| rest.split('_').next().and_then(|n| n.parse().ok()));
        assert!(said.is_none_or(|row| row.is_some_and(|row| entry.behaviours.contains(&row))), "{}", entry.name);
        assert!(
            entry.behaviours.iter().all(|row| BEHAVIOURS.iter().any(|known| known.number == *row)),
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
