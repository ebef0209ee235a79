//! Dialogues with the core: the test plays the application and the device.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod accepts;
mod acks;
mod active;
mod channels;
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
