//! `docs/hazards.md`: a line for each known hazard, and the tests it names exist.

use std::fs;

use cmid_harness::references;

use crate::root;

/// The lists of hazards and the last number of each.
const LISTS: [(&str, u32); 4] = [("T", 7), ("S", 11), ("P", 110), ("D", 4)];

/// Those that were inserted later.
const INSERTED: [&str; 2] = ["P3b", "P20b"];

#[test]
fn every_hazard_has_a_line_and_the_tests_that_it_names_exist() {
    let text = fs::read_to_string(root().join("docs/hazards.md")).unwrap();
    let is_number = |cell: &&str| cell.contains(|digit: char| digit.is_ascii_digit());
    let mut listed: Vec<&str> = text.lines().filter_map(first_cell).filter(is_number).collect();
    listed.sort_unstable();
    assert_eq!(listed, wanted());
    for reference in references::of(&text) {
        references::check(root(), reference).unwrap_or_else(|error| panic!("{reference}: {error:#}"));
    }
}

fn wanted() -> Vec<String> {
    let of = |(list, last): (&'static str, u32)| (1..=last).map(move |number| format!("{list}{number}"));
    let mut names: Vec<_> = LISTS.into_iter().flat_map(of).chain(INSERTED.map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.split_once(" |").map(|(cell, _)| cell)
}

#[test]
fn lines_of_a_table_are_known_by_their_first_cell() {
    assert_eq!(first_cell("| T1 | what | how |"), Some("T1"));
    assert_eq!(first_cell("T1 | what"), None);
}
