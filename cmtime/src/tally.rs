//! What became of the connections: each is counted once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use cmid_proto::Time;

use crate::phase::{Phase, Times};

/// Times of those that went through all phases, and why the others did not.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    phases: [Times; Phase::ALL.len()],
    /// From the creation of its id to the connection.
    pub(crate) connected: Times,
    /// From the creation of its id to its destruction.
    pub(crate) whole: Times,
    /// How many failed, by phase and reason.
    pub(crate) failed: BTreeMap<String, u64>,
    /// How many had begun and were not over at the deadline.
    pub(crate) unfinished: u64,
    /// How many had not begun by then.
    pub(crate) never_begun: u64,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        let one = Times::new()?;
        Ok(Tally {
            phases: std::array::from_fn(|_| one.clone()),
            connected: one.clone(),
            whole: one,
            failed: BTreeMap::new(),
            unfinished: 0,
            never_begun: 0,
        })
    }

    pub(crate) fn of(&self, phase: Phase) -> &Times {
        &self.phases[phase as usize]
    }

    pub(crate) fn note(&mut self, phase: Phase, begin: Time, end: Time) {
        self.phases[phase as usize].note(begin, end);
    }

    pub(crate) fn fail(&mut self, why: String) {
        *self.failed.entry(why).or_default() += 1;
    }

    /// How many have gone through all phases.
    pub(crate) fn finished(&self) -> u64 {
        self.whole.count()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Those of another host's clients.
    pub(crate) fn add(&mut self, other: &Tally) -> Result<()> {
        for (times, others) in self.phases.iter_mut().zip(&other.phases) {
            times.add(others)?;
        }
        self.connected.add(&other.connected)?;
        self.whole.add(&other.whole)?;
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
        self.unfinished += other.unfinished;
        self.never_begun += other.never_begun;
        Ok(())
    }
}

/// How many per second; 0 where no time has gone by.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
