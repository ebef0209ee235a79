//! Dialogues with the core: the test plays the application and the device. Every cell of the tables, and corner cases.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod accepts;
mod acks;
mod active;
#[path = "../cells/mod.rs"]
mod cells;
mod channels;
#[path = "../corners/mod.rs"]
mod corners;
mod datagrams;
mod deadlines;
mod destroy_now;
mod endings;
mod fixture;
mod flood;
mod foreign;
mod get_request;
mod groups;
mod iwarp;
mod limits;
mod listeners;
mod migrate;
mod numbers;
mod options;
mod passive;
mod races;
mod release;
mod removal;
mod start;
mod states;
mod sync;
mod taken;
mod teardown;
mod unreadable;
