//! The recorded form of figures: a section of benches/results/, from which docs/generated/performance.md is rendered.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    /// The target of the ratio; without a comparison, of the figures.
    pub(crate) target: Option<f64>,
    /// Whether the figure is the same on every run, or nearly so.
    pub(crate) exact: bool,
    pub(crate) figures: Figures,
    pub(crate) note: Option<String>,
    /// Where the instructions of both sides are executed.
    pub(crate) shares: Option<String>,
    /// The check fails above this: the known ratio, and a little room.
    pub(crate) limit: Option<f64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Figures {
    /// Figures of cmid and of the other program, in the order of the runs.
    Pairs(Vec<[f64; 2]>),
    Alone(Vec<f64>),
}

impl Row {
    fn middle(&self) -> f64 {
        let mut values: Vec<f64> = match &self.figures {
            Figures::Pairs(pairs) => pairs.iter().map(|[ours, theirs]| ours / theirs).collect(),
            Figures::Alone(figures) => figures.clone(),
        };
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => values[len / 2],
            len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
        }
    }

    /// Formats the row as text.
    pub(crate) fn text(&self) -> String {
        let figures = match &self.figures {
            Figures::Pairs(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|[ours, theirs]| format!("{ours:.1}/{theirs:.1}")).collect();
                format!("{:.3} x ({})", self.middle(), pairs.join(" "))
            }
            Figures::Alone(figures) => format!("{figures:?}"),
        };
        let target = self.target.map(|target| format!(", target {target}")).unwrap_or_default();
        let notes: String =
            [&self.shares, &self.note].into_iter().flatten().map(|note| format!("\n    {note}")).collect();
        format!("{}: {figures} {}{target}{notes}", self.what, self.unit)
    }

    /// # Errors
    /// The limit is exceeded.
    pub(crate) fn hold(&self) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        // NaN fails the check.
        ensure!(self.middle() <= limit, "{}: {:.3}, which is more than {limit}", self.what, self.middle());
        Ok(())
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "what": self.what,
            "unit": self.unit,
            "target": self.target.map(|target| json!({ "at_most": target })),
            "exact": self.exact,
            "note": self.note,
            "shares": self.shares,
        });
        let (key, figures) = match &self.figures {
            Figures::Pairs(pairs) => ("pairs", json!(pairs)),
            Figures::Alone(figures) => ("figures", json!(figures)),
        };
        row[key] = figures;
        row
    }
}

/// Formats a file of benches/results/.
pub(crate) fn section(title: &str, about: &str, rows: &[Row]) -> Value {
    let kernel = std::env::var("CMID_KERNEL").ok();
    let kernel = kernel.map(|release| release.split('.').take(2).collect::<Vec<_>>().join("."));
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    json!({ "title": title, "about": about, "kernel": kernel, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pairs: &[[f64; 2]], limit: f64) -> Row {
        let (what, figures) = (String::new(), Figures::Pairs(pairs.to_vec()));
        Row { what, unit: "", target: None, exact: true, figures, note: None, shares: None, limit: Some(limit) }
    }

    #[test]
    fn a_limit_is_held_by_the_median_and_by_nothing_if_nothing_was_measured() {
        let pairs = [[3.0, 1.0], [1.0, 1.0], [2.2, 2.0], [1.2, 1.0]];
        assert!(row(&pairs, 1.15).hold().is_ok());
        assert!(row(&pairs, 1.14).hold().is_err());
        assert!(row(&[], 100.0).hold().is_err());
    }
}
