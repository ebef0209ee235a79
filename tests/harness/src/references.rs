//! References in documents to tests: `path/to/file.rs::function`, or `conformance::scenario`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The list of the scenarios of the conformance suite.
const SCENARIOS: &str = "tests/conformance/src/scenarios/mod.rs";

/// Checks that the target of a reference exists. `root` is the root of the workspace.
///
/// # Errors
/// The target does not exist, or the file cannot be read.
pub fn check(root: &Path, reference: &str) -> Result<()> {
    let (place, name) = reference.rsplit_once("::").context("it names no function")?;
    if place == "conformance" {
        let list = fs::read_to_string(root.join(SCENARIOS)).context(SCENARIOS)?;
        ensure!(list.contains(&format!("::{name} [")), "there is no scenario {name}");
        return Ok(());
    }
    let source = fs::read_to_string(root.join(place)).with_context(|| place.to_owned())?;
    ensure!(defines(&source, name), "{place} has no function {name}");
    Ok(())
}

fn defines(source: &str, name: &str) -> bool {
    let definition = format!("fn {name}");
    source.match_indices(&definition).any(|(at, _)| source[at + definition.len()..].starts_with(['(', '<']))
}

/// Returns the references in a text, which are between backticks.
pub fn of(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|quoted| {
        let place = quoted.rsplit_once("::").map(|(place, _)| place);
        place.is_some_and(|place| place == "conformance" || place.ends_with(".rs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_other_code() {
        let text = "see `a/b.rs::f`, `conformance::behaviour_1`, `State::Idle` and `x.rs`";
        assert_eq!(of(text).collect::<Vec<_>>(), ["a/b.rs::f", "conformance::behaviour_1"]);
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let source = "fn behaviour_1() {}\nfn behaviour_2<L: Lab>() {}";
        assert!(defines(source, "behaviour_1") && defines(source, "behaviour_2"));
        assert!(!defines(source, "row"));
    }
}
