//! Tables in Markdown.

use std::fmt::Write as _;

/// Writes a table: a corner, the columns, and for each row a name and a cell per column.
pub(crate) fn grid(
    text: &mut String,
    corner: &str,
    columns: &[&str],
    rows: impl IntoIterator<Item = (String, Vec<String>)>,
) {
    let corner = if corner.is_empty() { "|".to_owned() } else { format!("| {corner}") };
    writeln!(text, "{corner} | {} |\n| --- |{}", columns.join(" | "), " --- |".repeat(columns.len())).unwrap();
    for (name, cells) in rows {
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
}

/// The name of the next state, or a dot if it is the same state.
pub(crate) fn go<S: PartialEq + ToString>(state: S, next: S) -> String {
    if state == next { "·".into() } else { next.to_string() }
}
