//! Compares `docs/generated/behaviours.md` with the recorded results (`UPDATE_EXPECT=1` writes it), and checks that
//! documents name existing tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod behaviours;
mod hazards;
mod platforms;

use std::path::Path;

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
