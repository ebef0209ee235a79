//! The outcomes of the connections. Each is counted once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use cmid_proto::Time;

use crate::phase::{Phase, Times};

/// The interval that a time belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Span {
    One(Phase),
    /// From the creation of the id to the established connection.
    Connected,
    /// From the creation of the id to its destruction.
    #[default]
    Whole,
}

/// Times that are not in a [`Tally`] yet. Recording a time here takes only a few instructions, so that it does not
/// disturb other measurements in progress.
#[derive(Clone, Debug)]
pub(crate) struct Log(Vec<(Span, Time, Time)>);

impl Log {
    /// Its capacity: enough for all times of 1,000 connections.
    const CAPACITY: usize = 1 << 14;

    pub(crate) fn new() -> Self {
        let mut all = Vec::with_capacity(Self::CAPACITY);
        // Written now, so that the pages are not faulted in later.
        all.resize(Self::CAPACITY, <(Span, Time, Time)>::default());
        all.clear();
        Log(all)
    }

    /// Records a time. Returns false if the log is full now.
    #[must_use]
    pub(crate) fn note(&mut self, span: Span, begin: Time, end: Time) -> bool {
        self.0.push((span, begin, end));
        self.0.len() < Self::CAPACITY
    }
}

/// The times of finished connections, and the failures of the others.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    phases: [Times; Phase::ALL.len()],
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
    pub(crate) fn new() -> Result<Self> {
        let one = Times::new()?;
        Ok(Tally {
            phases: std::array::from_fn(|_| one.clone()),
            connected: one.clone(),
            whole: one,
            failed: BTreeMap::new(),
            unfinished: 0,
        })
    }

    pub(crate) fn of(&self, phase: Phase) -> &Times {
        &self.phases[phase as usize]
    }

    /// Adds the times of a log, and empties it.
    pub(crate) fn file(&mut self, log: &mut Log) {
        for (span, begin, end) in log.0.drain(..) {
            let times = match span {
                Span::One(phase) => &mut self.phases[phase as usize],
                Span::Connected => &mut self.connected,
                Span::Whole => &mut self.whole,
            };
            times.note(begin, end);
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_filed_once_and_in_its_place() {
        let (mut log, mut tally) = (Log::new(), Tally::new().unwrap());
        assert!(log.note(Span::One(Phase::Connect), Time(1_000), Time(3_000)));
        assert!(log.note(Span::Connected, Time(500), Time(3_000)));
        assert!(log.note(Span::Whole, Time(500), Time(9_000)));
        assert_eq!(
            (tally.of(Phase::Connect).count(), tally.finished()),
            (0, 0),
            "nothing is counted while it is timed"
        );
        tally.file(&mut log);
        tally.file(&mut log);
        assert_eq!((tally.of(Phase::Connect).count(), tally.connected.count(), tally.finished()), (1, 1, 1));
        assert_eq!(tally.of(Phase::Connect).total(), Duration::from_nanos(2_000));
        assert_eq!((tally.of(Phase::Disconnect).count(), tally.whole.total()), (0, Duration::from_nanos(8_500)));
    }

    /// The log does not grow, so there is no allocation during measurements.
    #[test]
    fn a_log_says_when_it_is_full() {
        let mut log = Log::new();
        let room = log.0.capacity();
        let taken = (0..).take_while(|_| log.note(Span::Whole, Time(0), Time(1))).count();
        assert_eq!((taken, log.0.len(), log.0.capacity()), (Log::CAPACITY - 1, Log::CAPACITY, room));
        let mut tally = Tally::new().unwrap();
        tally.file(&mut log);
        assert_eq!((tally.finished(), log.0.capacity()), (Log::CAPACITY as u64, room));
    }
}
