//! Asserts that `docs/generated/tables.md`, `memory.md`, `redial.md` and `messages.md` match the tables and the machines,
//! and that their pictures show the same. `UPDATE_EXPECT=1` writes the documents and the DOT files.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod diagram;
mod grid;
mod memory;
mod messages;
mod redial;
mod reregistration;
#[path = "../memory/rules.rs"]
#[allow(dead_code, reason = "the removals, and what the tables do not show")]
mod rules;
mod tables;
