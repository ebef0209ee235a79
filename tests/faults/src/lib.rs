//! Faults on a real kernel: what is done to the network, to the host or to the peer, and what an application then sees.
//!
//! A [`Scenario`] brings two drivers into some phase of a connection, on a wire of its own (two soft-RoCE devices joined by
//! a veth pair), lets something go wrong, and writes down all that the application is told: events with their statuses,
//! what requests answer, and within which time. What must be told stands beside the scenario ([`Entry::told`]); both are
//! compared line by line, so anything else, or anything more, is a failure. `docs/faults.md` is rendered from the same list.
//!
//! Around each scenario the program `faults` sees to it that
//!
//! - **nothing hangs**: a scenario is a process with a bound on its time, and one that is killed at it has failed;
//! - **nothing leaks**: when all is destroyed, the process has no more descriptors than before, and the kernel counts no
//!   more ids, QPs, CQs, PDs and MRs of it on the two devices. Files of devices do not count: librdmacm keeps them open;
//! - the core's books are in order, and no driver has met anything impossible ([`Bench::clean`]).
//!
//! The wires are independent of each other, so that most scenarios run at the same time.
#![forbid(unsafe_code)]

#[cfg(feature = "verbs")]
pub mod alone;
mod devices;
mod entry;
pub mod filter;
#[cfg(feature = "verbs")]
mod lab;
pub mod lanes;
mod leaks;
mod peer;
mod phase;
mod report;
mod scenarios;
mod stage;
mod wire;

use cmid_harness::{Check, Failure, Lab};

pub use cmid_harness::{Bench, Speed};
pub use entry::{Drivers, Entry, Told, agree};
#[cfg(feature = "verbs")]
pub use lab::WireLab;
pub use leaks::Usage;
pub use peer::{Killed, Role, play};
pub use phase::Phase;
pub use report::{Findings, Outcome, Report, expected};
pub use scenarios::{entries, groups, scenarios};
pub use stage::Stage;
pub use wire::Wire;

/// One fault in one phase, and what is to be told of it.
pub struct Scenario<L: Lab> {
    /// What is known of it without running it.
    pub entry: Entry,
    steps: fn(&mut Stage<'_, L>) -> Check,
}

impl<L: Lab> std::fmt::Debug for Scenario<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry.name)
    }
}

impl<L: Lab> Scenario<L> {
    /// Runs it on a wire, and compares what was told with what is to be told on this kernel.
    ///
    /// # Errors
    /// The first difference; a leak; whatever kept the scenario from going on.
    pub fn run(&self, lab: &L, wire: &Wire, kernel: &str) -> Check<Vec<String>> {
        let wanted = Told::all_on(self.entry.told, kernel);
        let mut stage = Stage::new(lab, wire, wanted.clone())?;
        let steps = (self.steps)(&mut stage);
        let told = stage.end().map_err(|failure| Failure(format!("at the end: {failure}")));
        // What the steps failed with comes first, and what was told until then says how far they got.
        let so_far = |told: &[String]| told.iter().map(|line| format!("\n    {line}")).collect::<String>();
        match (steps, told) {
            (Ok(()), Ok(told)) => agree(&wanted, &told).map(|()| told),
            (Ok(()), Err(failure)) => Err(failure),
            (Err(failure), Ok(told)) => Err(Failure(format!("{failure}; told until then:{}", so_far(&told)))),
            (Err(failure), Err(end)) => Err(Failure(format!("{failure}; {end}"))),
        }
    }
}
