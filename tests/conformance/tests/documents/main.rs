//! `docs/generated/rows.md` is what the recorded results say (`UPDATE_EXPECT=1` writes it), and documents name tests that exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hazards;
mod rows;

use std::path::Path;

/// The workspace's.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
