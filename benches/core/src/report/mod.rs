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

Rendered by `cargo xtask bench` from what was measured (`benches/results/`); do not edit. What is exact (instructions, allocations,
bytes) is compared with its limits by `cargo xtask bench --check` on every run of CI; what depends on a machine is shown, never
asserted. A target is the project's aim, a limit is what has been reached. Where the quartiles of the measurements
lie on both sides of a target it is \"not shown\".
";

/// Renders all files of the report.
///
/// # Errors
/// Something was not measured.
pub fn render(results: &Results) -> Result<Files> {
    let mut files = Files::new();
    let mut page = HEAD.to_owned();
    page += &core_tables::render(&results.core)?;
    for plot in plots::of_core(&results.core)? {
        files.insert(format!("performance/{}", plot.file), plots::draw(&plot)?);
    }
    for section in &results.sections {
        page += &comparison::render(section)?;
        for plot in &section.plots {
            files.insert(format!("performance/{}", plot.file), plots::draw(plot)?);
        }
    }
    files.insert("performance.md".to_owned(), page);
    Ok(files)
}
