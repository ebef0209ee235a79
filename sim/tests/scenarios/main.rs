//! The conformance scenarios on the Device seam, under the virtual clock, each named after its row. What a row says of
//! UDP, of options and of synchronous mode is not expressible at the seam and left out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod addresses;
mod channels;
mod chaos;
mod common;
mod data_path;
mod faults;
mod handles;
mod normal_life;
mod real_clock;
mod refusals;
mod vanishing;
