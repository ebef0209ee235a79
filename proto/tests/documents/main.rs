//! `docs/generated/tables.md` and `docs/generated/memory.md` are what the tables and the machines say. `UPDATE_EXPECT=1` writes them.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod grid;
mod memory;
mod reregistration;
mod tables;
