//! What was measured, in files: `benches/results/core.json` for the core, and one for each comparison. The report is
//! rendered from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::counting::Counts;
use crate::memory::{Allocations, Bytes};

/// What the core costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCore {
    /// Instructions of a step.
    pub instructions: Counts,
    /// Allocations of [`crate::memory::STEPS`] steps.
    pub allocations: Allocations,
    /// Of an object.
    pub bytes: Bytes,
    /// Bytes of an idle id by the number of ids.
    pub bytes_per_id: BTreeMap<usize, u64>,
    /// Nanoseconds of a step, by case, by the number of ids.
    pub times: BTreeMap<String, BTreeMap<usize, f64>>,
}

/// A section of the report: a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// How and where it was measured, as Markdown.
    pub about: String,
    /// The kernel of the VM.
    pub kernel: Option<String>,
    /// Its table.
    pub rows: Vec<Row>,
    /// Its plots.
    #[serde(default)]
    pub plots: Vec<Plot>,
}

/// A line of a comparison's table. Of `pairs` and `figures` one is empty.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// In words.
    pub what: String,
    /// Of each figure.
    pub unit: String,
    /// Of the ratio of ours to theirs; where there is nothing to compare with, of the figure.
    pub target: Option<Target>,
    /// The same on every run: instructions, wake-ups, allocations.
    pub exact: bool,
    /// Ours and theirs, interleaved, in the order in which they were run.
    #[serde(default)]
    pub pairs: Vec<[f64; 2]>,
    /// Ours, where there is nothing to compare with.
    #[serde(default)]
    pub figures: Vec<f64>,
    /// What stands in the way, as Markdown.
    pub note: Option<String>,
}

/// What the project set out for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// No more.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

/// Lines in a plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The name of its file, `.svg` included.
    pub file: String,
    /// Its heading.
    pub title: String,
    /// What goes to the right.
    pub x: String,
    /// What goes up.
    pub y: String,
    /// Which of the axes are logarithmic.
    pub log: [bool; 2],
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Everything there is.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// What the core costs.
    pub core: OfCore,
    /// The comparisons, in the order of their files' names.
    pub sections: Vec<Section>,
}

const CORE: &str = "core.json";

impl Results {
    /// Where they are, by the root of the workspace.
    #[must_use]
    pub fn folder(root: &Path) -> PathBuf {
        root.join("benches/results")
    }

    /// Reads all files of the folder.
    ///
    /// # Errors
    /// One is missing or not as it should be.
    pub fn read(root: &Path) -> Result<Self> {
        let folder = Self::folder(root);
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        let mut results = Results { core: read(&folder.join(CORE))?, sections: Vec::new() };
        for path in paths.iter().filter(|path| !path.ends_with(CORE)) {
            results.sections.push(read(path)?);
        }
        Ok(results)
    }
}

impl OfCore {
    /// Writes them where [`Results::read`] finds them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        let path = Results::folder(root).join(CORE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}
