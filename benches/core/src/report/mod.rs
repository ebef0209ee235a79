//! docs/generated/performance.md and its plots, rendered from the [results](crate::results) and nothing else.

mod comparison;
mod core_tables;
mod plots;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::results::Results;

/// The files of the report by their paths in `docs/generated/`.
pub type Files = BTreeMap<String, String>;

const HEAD: &str = "\
# Performance

Rendered by `cargo xtask bench` from what was measured (`benches/results/`); do not edit. What is exact (instructions, allocations,
bytes) is compared with its limits by `cargo xtask bench --check` on every run of CI; what depends on a machine is told, never
asserted. A target is what the project set out for, a limit is what is reached. Where the quartiles of what was measured
lie on both sides of a target it is \"not shown\".
";

/// Everything that is to be in `docs/generated/`.
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

/// Writes it.
///
/// # Errors
/// Something was not measured, or a file cannot be written.
pub fn write(root: &Path) -> Result<()> {
    for (name, text) in render(&Results::read(root)?)? {
        let path = root.join("docs/generated").join(name);
        let folder = path.parent().context("a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Whether what is in `docs/` is what would be written.
///
/// # Errors
/// It is not.
pub fn check(root: &Path) -> Result<()> {
    for (name, text) in render(&Results::read(root)?)? {
        let path = root.join("docs/generated").join(&name);
        if fs::read_to_string(&path).with_context(|| path.display().to_string())? != text {
            bail!("docs/generated/{name} is not what benches/results/ says: cargo run -p cmid-bench -- render");
        }
    }
    Ok(())
}
