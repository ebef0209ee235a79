//! Faults on a real kernel: what is done to the network, to the host or to the peer, and what an application then sees.
//!
//! A [`Scenario`] brings two drivers into some phase of a connection, on a wire of its own (two soft-RoCE devices joined by
//! a veth pair), lets something go wrong, and writes down all that the application is told: events with their statuses,
//! what requests answer, and within which time. What must be told stands beside the scenario ([`Entry::observed`]); both are
//! compared line by line, so anything else, or anything more, is a failure. `docs/generated/faults.md` is rendered from the same list.
//!
//! Around each scenario the program `faults` sees to it that
//!
//! - **nothing hangs**: a scenario is a process with a bound on its time, and one that is killed at it has failed;
//! - **nothing leaks**: when all is destroyed, the process has no more descriptors than before, and the kernel counts no
//!   more ids, QPs, CQs, PDs and MRs of it on the two devices. Files of devices do not count: librdmacm keeps them open;
//! - the core's books are in order, and no driver has met anything impossible ([`Fixture::clean`]).
//!
//! The wires are independent of each other, so that most scenarios run at the same time.
#![forbid(unsafe_code)]

#[cfg(feature = "verbs")]
pub mod alone;
mod devices;
mod entry;
#[cfg(feature = "verbs")]
mod env;
pub mod filter;
mod fixture;
pub mod lanes;
mod leaks;
mod link;
mod peer;
mod phase;
mod report;
mod scenarios;

use cmid_harness::{Check, Env, Failure};

pub use cmid_harness::{Fixture, Speed};
pub use entry::{Drivers, Entry, Told, agree};
#[cfg(feature = "verbs")]
pub use env::LinkEnv;
pub use fixture::FaultFixture;
pub use leaks::Usage;
pub use link::Link;
pub use peer::{Killed, Role, play};
pub use phase::Phase;
pub use report::{Findings, Outcome, Report, expected};
pub use scenarios::{entries, groups, scenarios};

/// One fault in one phase, and what is to be told of it.
pub struct Scenario<L: Env> {
    /// What is known of it without running it.
    pub entry: Entry,
    steps: fn(&mut FaultFixture<'_, L>) -> Check,
}

impl<L: Env> std::fmt::Debug for Scenario<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry.name)
    }
}

impl<L: Env> Scenario<L> {
    /// Runs it on a wire, and compares what was told with what is to be told on this kernel.
    ///
    /// # Errors
    /// The first difference; a leak; whatever kept the scenario from going on.
    pub fn run(&self, env: &L, link: &Link, kernel: &str) -> Check<Vec<String>> {
        let wanted = Told::all_on(self.entry.observed, kernel);
        let mut fixture = FaultFixture::new(env, link, wanted.clone())?;
        let steps = (self.steps)(&mut fixture);
        let observed = fixture.end().map_err(|failure| Failure(format!("at the end: {failure}")));
        // What the steps failed with comes first, and what was told until then says how far they got.
        let so_far = |observed: &[String]| observed.iter().map(|line| format!("\n    {line}")).collect::<String>();
        match (steps, observed) {
            (Ok(()), Ok(observed)) => agree(&wanted, &observed).map(|()| observed),
            (Ok(()), Err(failure)) => Err(failure),
            (Err(failure), Ok(observed)) => Err(Failure(format!("{failure}; told until then:{}", so_far(&observed)))),
            (Err(failure), Err(end)) => Err(Failure(format!("{failure}; {end}"))),
        }
    }
}
