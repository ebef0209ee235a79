//! A command in the VM, as a step.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_softroce::{Kernel, Options};

/// Runs it for at most `limit` seconds; it may write to these directories.
pub(crate) fn run(kernel: Kernel, limit: u64, command: &[OsString], writable: Vec<PathBuf>) -> Result<()> {
    let options = Options { kernel, timeout: Duration::from_secs(limit), writable, ..Options::default() };
    match cmid_softroce::run(&options, command)? {
        0 => Ok(()),
        status => bail!("in the VM: exit status {status}"),
    }
}
