//! The conformance scenarios at the `Device` seam, under the virtual clock. Each test is named after its behaviour.
//! Parts of a behaviour that concern synchronous mode, acks, or arguments that the seam cannot carry are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod addresses;
mod async_events;
mod blocks;
mod channels;
mod chaos;
mod common;
mod creations;
mod data_path;
mod datagrams;
mod devices;
mod ece;
mod faults;
mod handles;
mod iwarp;
mod iwarp_data;
mod lookups;
mod memory;
mod multicast;
mod neighbours;
mod normal_life;
mod notify;
mod options;
mod providers;
mod qp_attrs;
mod real_clock;
mod refusals;
mod removal;
mod retries;
mod srq;
mod ud_data;
mod vanishing;
