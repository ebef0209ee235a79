//! The times measured by criterion.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cases::SIZES;

/// Medians, in nanoseconds, by case and number of ids, from criterion's folder: `CASE/IDS/new/estimates.json`.
///
/// # Errors
/// There are none, or a file is malformed.
pub fn read(folder: &Path) -> Result<BTreeMap<String, BTreeMap<usize, f64>>> {
    let mut by_case = BTreeMap::<String, BTreeMap<_, _>>::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let case = entry?.file_name().to_string_lossy().into_owned();
        for ids in SIZES {
            let path = folder.join(&case).join(ids.to_string()).join("new/estimates.json");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let estimates: serde_json::Value = serde_json::from_str(&text).context("estimates.json")?;
            let median = estimates.pointer("/median/point_estimate").and_then(serde_json::Value::as_f64);
            by_case.entry(case.clone()).or_default().insert(ids, median.context("no median")?);
        }
    }
    ensure!(!by_case.is_empty(), "criterion has left nothing in {}", folder.display());
    Ok(by_case)
}
