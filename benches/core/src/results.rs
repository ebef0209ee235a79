//! The recorded results: `benches/results/core.json` for the core, and one file for each comparison. The report is
//! rendered from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::counting::Counts;
use crate::memory::{Allocations, Bytes};

/// The costs of the core.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCore {
    /// Instructions of a step.
    pub instructions: Counts,
    /// Allocations of [`crate::memory::STEPS`] steps.
    pub allocations: Allocations,
    /// Bytes of an object.
    pub bytes: Bytes,
    /// Bytes of an idle id by the number of ids.
    pub bytes_per_id: BTreeMap<usize, u64>,
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
}

/// A line of a comparison's table. Either `pairs` or `figures` is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its description.
    pub what: String,
    /// The unit of each figure.
    pub unit: String,
    /// The target for the ratio of cmid's figure to the other's; without a comparison, for the figure.
    pub target: Option<Target>,
    /// Whether the figure is the same on every run, as for instructions, wake-ups and allocations.
    pub exact: bool,
    /// Figures of cmid and of the other program, interleaved, in the order of the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<[f64; 2]>,
    /// Figures of cmid alone, without a comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<f64>,
    /// Where the instructions or system calls of both sides are made; not on the page.
    #[serde(default)]
    pub shares: Option<String>,
    /// The measurement fails above this: the known ratio or figure, and a little room. Not recorded.
    #[serde(skip)]
    pub limit: Option<f64>,
}

/// A goal of the project.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
}

/// All results.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The costs of the core.
    pub core: OfCore,
    /// The comparisons, in the order of their file names.
    pub sections: Vec<Section>,
}

const CORE: &str = "core.json";

impl Results {
    /// The folder of the results, from the root of the workspace.
    #[must_use]
    pub fn folder(root: &Path) -> PathBuf {
        root.join("benches/results")
    }

    /// Reads all files of the folder.
    ///
    /// # Errors
    /// A file is missing or malformed.
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
    /// Writes the core's results to the folder that [`Results::read`] reads.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        write(&Results::folder(root).join(CORE), self)
    }
}

impl Section {
    /// Writes the comparison with rdma-core's cmtime.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_cmtime(&self, root: &Path) -> Result<()> {
        write(&Results::folder(root).join("cmtime.json"), self)
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn write(path: &Path, results: &impl Serialize) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(results)? + "\n").with_context(|| path.display().to_string())
}
