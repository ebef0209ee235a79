//! `cargo xtask demo`: the demonstrations on the simulated fabric.

use anyhow::Result;

use crate::context::Context;

/// Runs the demonstrations.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    DEMOS.iter().try_for_each(|demo| context.cargo(demo, &[]))
}

/// The demonstrations, as arguments to cargo.
const DEMOS: [&[&str]; 2] = [
    &["run", "--release", "--quiet", "--package", "rping", "--", "demo"],
    &["run", "--release", "--quiet", "--package", "replog", "--", "demo"],
];
