//! Worlds: whole programs in virtual time, under faults.
#![allow(clippy::unwrap_used, reason = "a test")]

mod caller;
mod client;
mod coverage;
mod determinism;
mod hosts;
mod link;
mod mistakes;
mod rebalanced;
mod redial;
mod reports;
mod rules;
mod server;
mod task;
