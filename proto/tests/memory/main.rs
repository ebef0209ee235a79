//! Memory regions and protection domains: the test plays the application and the device.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod arguments;
mod cells;
mod columns;
mod domains;
mod late;
mod ledger;
mod reregistration;
mod rules;
mod small;
