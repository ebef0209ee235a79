//! How to run a command in the guest.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::kernel::Kernel;
use crate::transport::Transport;

/// How to run a command in the guest.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kernel to boot.
    pub kernel: Kernel,
    /// The transport of the RDMA devices.
    pub transport: Transport,
    /// The time limit of the command. Booting is not counted; it has a limit of its own.
    pub timeout: Duration,
    /// The guest's memory in MiB. Three quarters of it hold the files that the command writes.
    pub memory_mib: u32,
    /// The number of virtual CPUs, usually one. With more of them QEMU's emulation has a rare race that fails the
    /// kernel (an oops at "int3"). While booting it is tried again; later on it is [`crate::Error::GuestKernel`].
    pub cpus: u32,
    /// Whether the guest's clock counts its instructions, one a nanosecond, while it does not sleep. The guest then
    /// has a fast CPU, independent of the host's load, and its timers are in step with it. For one CPU only; about a
    /// fifth slower.
    pub counted_clock: bool,
    /// Directories of the host that the command may write to. They are created if they do not exist.
    pub writable: Vec<PathBuf>,
    /// Variables for the command, besides those of this process's environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kernel: Kernel::default(),
            transport: Transport::default(),
            timeout: Duration::from_secs(300),
            memory_mib: 512,
            cpus: 1,
            counted_clock: false,
            writable: Vec::new(),
            environment: Vec::new(),
        }
    }
}
