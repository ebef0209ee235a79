//! Bounds that the server and the clients share.

use std::time::Duration;

/// The time limit of each step. Emulated machines are slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Size of the registered memory, which contains the name of its device, padded with zeros.
pub(crate) const SIZE: usize = 64;
