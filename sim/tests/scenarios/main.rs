//! The conformance scenarios on the Device seam, under the virtual clock, each named after its behaviour. What a behaviour says of
//! synchronous mode, of acks and of arguments that the seam cannot carry is left out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod addresses;
mod channels;
mod chaos;
mod common;
mod data_path;
mod datagrams;
mod ece;
mod faults;
mod handles;
mod lookups;
mod memory;
mod multicast;
mod neighbours;
mod normal_life;
mod notify;
mod options;
mod real_clock;
mod refusals;
mod removal;
mod ud_data;
mod vanishing;
