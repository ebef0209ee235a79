//! The outcomes of the connections. Each is counted once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::phase::{Phase, Times};

/// The times of finished connections, and the failures of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// By the number of the phase.
    pub(crate) phases: [Times; Phase::ALL.len()],
    /// From the creation of the id to the established connection.
    pub(crate) connected: Times,
    /// From the creation of the id to its destruction.
    pub(crate) whole: Times,
    /// How many failed, by phase and reason.
    pub(crate) failed: BTreeMap<String, u64>,
    /// How many were in progress at the deadline.
    pub(crate) unfinished: u64,
}

impl Tally {
    pub(crate) fn fail(&mut self, reason: String) {
        *self.failed.entry(reason).or_default() += 1;
    }

    /// How many have finished all phases.
    pub(crate) fn finished(&self) -> u64 {
        self.whole.count()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// How many per second; 0 if no time has passed.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
