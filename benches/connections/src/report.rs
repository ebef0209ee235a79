//! The results, as a table or as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::args::Args;
use crate::phase::{Phase, Times};
use crate::server::Served;
use crate::tally::{Tally, rate};

/// The report of a client.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    driver: &'static str,
    connections: u64,
    finished: u64,
    failed: BTreeMap<String, u64>,
    unfinished: u64,
    phases: Vec<Line>,
    /// From the first id created to the last connection established.
    connected_per_second: f64,
    /// From the first id created to the last one destroyed.
    per_second: f64,
}

/// One phase over all connections.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    count: u64,
    total_ms: f64,
    min_us: f64,
    median_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Line {
    fn new(name: &'static str, times: &Times) -> Self {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let [min, median, p99, max] = times.quantiles().map(us);
        let total_ms = us(times.total()) / 1e3;
        Line { name, count: times.count(), total_ms, min_us: min, median_us: median, p99_us: p99, max_us: max }
    }
}

impl Report {
    pub(crate) fn new(args: &Args, connections: u64, tally: &Tally) -> Self {
        let phases = Phase::ALL.map(Phase::name).into_iter().zip(&tally.phases);
        let all = phases.chain([("until connected", &tally.connected), ("whole life", &tally.whole)]);
        Report {
            driver: args.driver.name(),
            connections,
            finished: tally.finished(),
            failed: tally.failed.clone(),
            unfinished: tally.unfinished,
            phases: all.filter(|(_, times)| times.count() > 0).map(|(name, times)| Line::new(name, times)).collect(),
            connected_per_second: rate(tally.connected.count(), tally.connected.total()),
            per_second: rate(tally.finished(), tally.whole.total()),
        }
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        if json {
            say!("{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        say!(
            "{:<15} {:>11} {:>11} {:>11} {:>11} {:>11}",
            "step",
            "total ms",
            "min us",
            "median us",
            "p99 us",
            "max us"
        )?;
        for line in &self.phases {
            say!(
                "{:<15} {:>11.2} {:>11.2} {:>11.2} {:>11.2} {:>11.2}",
                line.name,
                line.total_ms,
                line.min_us,
                line.median_us,
                line.p99_us,
                line.max_us
            )?;
        }
        say!(
            "{} of {} connections finished; {:.0} connected per second, {:.0} from creation to destruction",
            self.finished,
            self.connections,
            self.connected_per_second,
            self.per_second
        )?;
        for (reason, count) in &self.failed {
            say!("{count} failed: {reason}")?;
        }
        if self.unfinished > 0 {
            say!("{} not over at the deadline", self.unfinished)?;
        }
        Ok(())
    }
}

/// Prints the report of a server. Its clients report whether they were served.
pub(crate) fn print_served(served: &Served) -> Result<()> {
    say!("{} connections came and went", served.ended)?;
    for (reason, count) in &served.failed {
        say!("{count} failed: {reason}")?;
    }
    if let Some(reason) = &served.lost {
        say!("it listened no longer: {reason}")?;
    }
    if served.unfinished > 0 {
        say!("{} were not over at the end", served.unfinished)?;
    }
    Ok(())
}
