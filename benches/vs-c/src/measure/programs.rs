//! What is measured: the programs, and the address that they use.

use std::path::PathBuf;

/// An address of soft-RoCE, for a loopback inside the device.
pub(super) const ADDRESS: &str = "10.99.0.1";

/// The compared programs.
pub(super) struct Programs {
    pub(super) ours: PathBuf,
    pub(super) c: PathBuf,
}
