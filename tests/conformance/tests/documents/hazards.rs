//! `docs/hazards.md`: a line for each known hazard, and the tests it names exist.

use std::collections::BTreeSet;
use std::fs;

use cmid_harness::references;

use crate::root;

/// The lists of hazards and their lengths, with the numbers inserted later.
const LISTS: [(&str, usize, &[&str]); 4] = [("T", 7, &[]), ("S", 11, &[]), ("P", 50, &["3b", "20b"]), ("D", 4, &[])];

#[test]
fn every_hazard_has_a_line_and_the_tests_that_it_names_exist() {
    let text = fs::read_to_string(root().join("docs/hazards.md")).unwrap();
    let listed: BTreeSet<&str> = text.lines().filter_map(first_cell).collect();
    let lacking: Vec<_> = wanted().into_iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(lacking.is_empty(), "no line for {}", lacking.join(", "));
    for reference in references::of(&text) {
        references::check(root(), reference).unwrap_or_else(|error| panic!("{reference}: {error:#}"));
    }
}

fn wanted() -> Vec<String> {
    let of = |(list, count, between): (&str, usize, &[&str])| -> Vec<String> {
        let numbers = (1..=count).map(|number| number.to_string()).chain(between.iter().map(|&name| name.to_owned()));
        numbers.map(|number| format!("{list}{number}")).collect()
    };
    LISTS.into_iter().flat_map(of).collect()
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.split_once(" |").map(|(cell, _)| cell)
}

#[test]
fn lines_of_a_table_are_known_by_their_first_cell() {
    assert_eq!(first_cell("| T1 | what | how |"), Some("T1"));
    assert_eq!(first_cell("T1 | what"), None);
    assert!(wanted().contains(&"P20b".to_owned()));
}
