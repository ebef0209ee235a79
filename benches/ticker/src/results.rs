//! The figures, in a file.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The figures of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The mean number of instructions in user space from a tick to its order, if they were counted.
    pub(crate) instructions: Option<f64>,
    /// The times of each trader; the first is the one that polls.
    pub(crate) times: Vec<Times>,
}

/// The times of a trader from a tick's send to its order's arrival, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) trader: String,
    pub(crate) count: u64,
    pub(crate) mean: f64,
    /// Each with its share, from 0 to 1.
    pub(crate) quantiles: Vec<(f64, u64)>,
}

/// The quantiles that are recorded.
const SHARES: [f64; 12] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0];

impl Times {
    pub(crate) fn of(trader: &str, histogram: &Histogram<u64>) -> Self {
        let quantiles = SHARES.map(|share| (share, histogram.value_at_quantile(share))).to_vec();
        Times { trader: trader.to_owned(), count: histogram.len(), mean: histogram.mean(), quantiles }
    }

    /// A quantile; 0 if it is not recorded.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let found = self.quantiles.iter().find(|(it, _)| (it - share).abs() < 1e-9);
        found.map_or(0, |(_, value)| *value)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |share| self.quantile(share) as f64 / 1000.0;
        write!(
            f,
            "{}: {} ticks, half of them within {:.1} us, 90 % within {:.1} us, 99 % within {:.1} us",
            self.trader,
            self.count,
            micros(0.5),
            micros(0.9),
            micros(0.99)
        )
    }
}

impl Results {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Changes the figures of a file, which need not exist.
    pub(crate) fn update(file: &Path, change: impl FnOnce(&mut Results)) -> Result<()> {
        let mut results = if file.exists() { Results::read(file)? } else { Results::default() };
        change(&mut results);
        let text = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(file, text).with_context(|| file.display().to_string())
    }
}
