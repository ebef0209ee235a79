//! Renders docs/generated/performance.md with its plots, and docs/generated/targets.md, from the [results](crate::results) only.

mod comparison;
mod core_tables;
mod plots;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::results::Results;

pub(crate) use comparison::quartiles;
pub use comparison::render as render_section;

/// The files of the report by their paths in `docs/generated/`.
pub type Files = BTreeMap<String, String>;

const HEAD: &str = "\
# Performance

What cmid costs beside C and other crates. Rendered by `cargo xtask bench` from what was measured (`benches/results/`); do not edit. What depends on a machine
is shown, never asserted. The project's aims, and the core by itself: [targets](targets.md).
";

const TARGETS: &str = "\
# Targets

The figures of [performance](performance.md) that have a target, and the core by itself. Rendered like that page. Exact figures (instructions, allocations,
bytes) are compared with their limits on every run of CI. A target is the project's aim, a limit is what has been reached. If the quartiles lie on both sides of a
target, it is \"not shown\". Where the instructions of a row are executed: `shares` in the files of results.
";

/// Renders all files of the report.
///
/// # Errors
/// Something was not measured.
pub fn render(results: &Results) -> Result<Files> {
    let mut files = Files::new();
    let mut page = HEAD.to_owned();
    for section in &results.sections {
        page += &comparison::render(section)?;
        for plot in &section.plots {
            files.insert(format!("performance/{}", plot.file), plots::draw(plot)?);
        }
    }
    files.insert("performance.md".to_owned(), page);
    let targets = [TARGETS, &comparison::targets(&results.sections)?, &core_tables::render(&results.core)?];
    files.insert("targets.md".to_owned(), targets.concat());
    for plot in plots::of_core(&results.core)? {
        files.insert(format!("performance/{}", plot.file), plots::draw(&plot)?);
    }
    Ok(files)
}
