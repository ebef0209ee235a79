//! Every cell of both tables is met by a core, and counted: one that is not fails the test.
//!
//! What a cell leads to is compared with the table. Whether the table is right is for the other tests to say.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/fixture.rs"]
mod fixture;

mod columns;
mod facts;
mod places;
mod requests;
