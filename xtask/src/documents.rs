//! `cargo xtask diagrams`: writes `docs/generated/`.

use anyhow::Result;

use crate::context::Context;

/// The packages with tests called `documents`, which compare `docs/generated/` with its sources.
const PACKAGES: [&str; 5] = ["cmid-proto", "cmid-conformance", "cmid-faults", "cmid-differential", "cmid-bench"];

/// Runs these tests so that they write the files.
pub(crate) fn render(context: &Context) -> Result<()> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let arguments = ["test", "--quiet", "--test", "documents"].into_iter().chain(packages);
    context.cargo(&arguments.collect::<Vec<_>>(), &[("UPDATE_EXPECT", "1".as_ref())])
}
