//! The rows of a file of benches/results/, from which docs/generated/performance.md is rendered.

use anyhow::{Result, ensure};
use cmid_bench::report::quartiles;
use cmid_bench::results::{Row, Section, Target};

/// The median: of the ratios, or without a comparison of the figures.
fn middle(row: &Row) -> Result<f64> {
    let ratios = row.pairs.iter().map(|[ours, theirs]| ours / theirs);
    Ok(quartiles(ratios.chain(row.figures.iter().copied()).collect(), &row.what)?[1])
}

/// Formats the row as text.
pub(crate) fn text(row: &Row) -> String {
    let figures = if row.figures.is_empty() {
        let pairs: Vec<_> = row.pairs.iter().map(|[ours, theirs]| format!("{ours:.1}/{theirs:.1}")).collect();
        format!("{:.3} x ({})", middle(row).unwrap_or(f64::NAN), pairs.join(" "))
    } else {
        format!("{:?}", row.figures)
    };
    let target = row.target.map(|(Target::AtMost(target) | Target::AtLeast(target))| format!(", target {target}"));
    let notes: String = row.shares.iter().map(|note| format!("\n    {note}")).collect();
    format!("{}: {figures} {}{}{notes}", row.what, row.unit, target.unwrap_or_default())
}

/// # Errors
/// The limit is exceeded.
pub(crate) fn hold(row: &Row) -> Result<()> {
    let Some(limit) = row.limit else { return Ok(()) };
    let middle = middle(row)?;
    ensure!(middle <= limit, "{}: {middle:.3}, which is more than {limit}", row.what);
    Ok(())
}

/// The section for a file of benches/results/.
pub(crate) fn section(title: &str, about: &str, rows: &[Row]) -> Section {
    let kernel = std::env::var("CMID_KERNEL").ok();
    let kernel = kernel.map(|release| release.split('.').take(2).collect::<Vec<_>>().join("."));
    Section { title: title.to_owned(), about: about.to_owned(), kernel, rows: rows.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_held_by_the_median_and_by_nothing_if_nothing_was_measured() {
        let row = |pairs: &[[f64; 2]], limit| Row { pairs: pairs.to_vec(), limit: Some(limit), ..Row::default() };
        let pairs = [[3.0, 1.0], [1.0, 1.0], [2.2, 2.0], [1.2, 1.0]];
        assert!(hold(&row(&pairs, 1.15)).is_ok());
        assert!(hold(&row(&pairs, 1.14)).is_err());
        assert!(hold(&row(&[], 100.0)).is_err());
    }
}
