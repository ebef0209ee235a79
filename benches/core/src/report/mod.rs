//! Renders docs/generated/performance.md and its plots, from the [results](crate::results) only.

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

Rendered by `cargo xtask bench` from what was measured (`benches/results/`); do not edit. Exact figures (instructions, allocations, bytes) are compared with
their limits on every run of CI; what depends on a machine is shown, never asserted. A target is the project's aim, a limit is what has been reached. If the
quartiles lie on both sides of a target, it is \"not shown\". Where the instructions of a row are executed: `shares` in the files of results.
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
    page += &core_tables::render(&results.core)?;
    for plot in plots::of_core(&results.core)? {
        files.insert(format!("performance/{}", plot.file), plots::draw(&plot)?);
    }
    files.insert("performance.md".to_owned(), page);
    Ok(files)
}
