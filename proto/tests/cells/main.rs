//! Every cell of both tables is met by a core, and counted: one that is not fails the test.
//!
//! What a cell leads to is compared with the table and with every other kind of cell: it fits the table's alone. Whether the
//! table is right is for `columns` to say, which states it a second time, and for the other tests.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/fixture.rs"]
mod fixture;

mod columns;
mod facts;
mod ids;
mod kinds;
mod requests;
