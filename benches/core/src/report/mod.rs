//! Renders docs/generated/performance.md and docs/generated/targets.md from the [results](crate::results) only.

mod comparison;
mod core_tables;

use anyhow::Result;

use crate::results::Results;

pub use comparison::{quartiles, render as render_section};

const HEAD: &str = "\
# Performance

What cmid costs beside C and other crates. Rendered by `cargo xtask bench` from `benches/results/`. What depends on a machine
is shown, never asserted. The project's aims, and the core by itself: [targets](targets.md).
";

const TARGETS: &str = "\
# Targets

The figures of [performance](performance.md) that have a target, and the core by itself. Rendered like that page. Exact figures (instructions, allocations,
bytes) are compared with their limits on every run of CI. A target is the project's aim, a limit is what has been reached. If the quartiles lie on both sides of a
target, it is \"not shown\". Where the instructions of a row are executed: `shares` in the files of results.
";

/// Renders the pages of the report, with their names in `docs/generated/`.
///
/// # Errors
/// Something was not measured.
pub fn render(results: &Results) -> Result<[(&'static str, String); 2]> {
    let mut page = HEAD.to_owned();
    for section in &results.sections {
        page += &comparison::render(section)?;
    }
    let targets = [TARGETS, &comparison::targets(&results.sections)?, &core_tables::render(&results.core)?];
    Ok([("performance.md", page), ("targets.md", targets.concat())])
}
