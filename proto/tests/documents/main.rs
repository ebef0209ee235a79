//! Asserts that `docs/generated/tables.md` and `docs/generated/memory.md` match the tables and the machines.
//! `UPDATE_EXPECT=1` writes them.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod grid;
mod memory;
mod reregistration;
mod tables;
