//! Steps in a VM with soft-iWARP.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::context::Context;
use crate::{cmtime, conformance, guest, scripts};

fn run(kernel: Kernel, limit: u64, command: &[OsString], writable: Vec<PathBuf>) -> Result<()> {
    let timeout = Duration::from_secs(limit);
    guest::run_with(&Options { kernel, transport: Transport::Siw, timeout, writable, ..Options::default() }, command)
}

/// Runs the scenarios of iWARP, with every driver.
pub(crate) fn scenarios(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let environment = backend.iwarp_environment(kernel);
    let mut command = scripts::program(context, backend, &["conformance", "--device", "verbs"]);
    command.extend(conformance::SUITE.arguments(context, &environment, conformance::FAST)?);
    run(kernel, limit, &command, vec![conformance::SUITE.reports(context)?])
}

/// Runs cmid's rping, cmtime and peer of ucmatose against rdma-core's, and its peer of `ib_send_lat -R` against
/// perftest's.
pub(crate) fn peers(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    run(kernel, limit, &scripts::rping(context, kernel, backend), Vec::new())?;
    run(kernel, limit, &cmtime::command(context, kernel, backend), Vec::new())?;
    run(kernel, limit, &scripts::ucmatose(context, kernel, backend), Vec::new())?;
    run(kernel, limit, &scripts::perftest(context, kernel, backend), Vec::new())
}

/// Runs the checks of posts and creations that hold on soft-iWARP, too. Its library has no extended calls.
pub(crate) fn posts(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    let command = scripts::program(context, backend, &["kernel-device", "classic", "refused posts", "creations"]);
    run(kernel, limit, &command, Vec::new())
}

/// Measures how long calls wait for a peer that does not answer.
pub(crate) fn waits(context: &Context, kernel: Kernel, backend: Backend, limit: u64) -> Result<()> {
    run(kernel, limit, &scripts::program(context, backend, &["kernel-iwarp-waits"]), Vec::new())
}
