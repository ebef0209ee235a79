//! Faults on a real kernel: injects faults into the network, the host or the peer, and records what an application
//! observes.
//!
//! A [`Scenario`] brings two drivers into some phase of a connection, on a link of its own (two soft-RoCE devices
//! joined by a veth pair). It injects a fault and records all that the application observes: events with their
//! statuses, results of requests, and the time they take. The expected lines stand beside the scenario
//! ([`Entry::observed`]). Both are compared line by line, so a different line or an additional one is a failure.
//! `docs/generated/faults.md` is rendered from the same list.
//!
//! Around each scenario the program `faults` checks that
//!
//! - **nothing hangs**: a scenario runs in a process with a time limit, and fails if it is killed at the limit;
//! - **nothing leaks**: after all is destroyed, the process has no more descriptors than before, and the kernel
//!   counts no more ids, QPs, CQs, PDs and MRs of it on the two devices. Files of devices do not count: librdmacm
//!   keeps them open;
//! - the core's bookkeeping is consistent, and no driver has met a fault ([`Fixture::clean`]).
//!
//! The links are independent of each other, so most scenarios run at the same time.
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
mod scenario;
mod scenarios;

pub use cmid_harness::{Fixture, Speed};
pub use entry::{Drivers, Entry, Expected, agree};
#[cfg(feature = "verbs")]
pub use env::LinkEnv;
pub use fixture::FaultFixture;
pub use leaks::Usage;
pub use link::Link;
pub use peer::{Killed, Role, play};
pub use phase::Phase;
pub use report::{Findings, Outcome, Report, expected};
pub use scenario::Scenario;
pub use scenarios::{entries, groups, scenarios};
