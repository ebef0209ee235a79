//! Dialogues with the core: the test plays the application and the device.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod acks;
mod active;
mod channels;
mod deadlines;
mod fixture;
mod foreign;
mod limits;
mod listeners;
mod migrate;
mod passive;
mod property;
mod release;
mod sync;
mod table;
mod world;
