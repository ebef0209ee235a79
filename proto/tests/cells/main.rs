//! A core meets every cell of both tables. A cell that is not met fails the test.
//!
//! The effect of a cell is compared with the table. `columns`, a second statement of the tables, and the other tests
//! show that the table is right.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/fixture.rs"]
mod fixture;

mod columns;
mod events;
mod ids;
mod request_of;
mod requests;
#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/start.rs"]
mod start;
#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/states.rs"]
mod states;
#[path = "../dialogues/taken.rs"]
mod taken;
