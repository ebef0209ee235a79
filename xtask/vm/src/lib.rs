//! Runs a command in a small virtual machine with a soft-RoCE kernel (`rdma_rxe`): a real uverbs device, a real
//! `rdma_cm`, without RDMA hardware, without KVM, and without installing a kernel.
//!
//! [`run`] does these steps:
//!
//! 1. installs missing Debian packages ([`packages`]);
//! 2. downloads and unpacks Debian's kernel once, into [`cache_directory`];
//! 3. boots it in QEMU (software emulation, about five seconds), with the host's files under an overlay, so that
//!    programs and libraries of the host run unchanged at the same paths, and their writes are discarded at the
//!    end, except below [`Options::writable`];
//! 4. runs the command there, in the same working directory and environment, forwards its output as it is written,
//!    and returns its exit status.
//!
//! Every run has its own machine. Any number of them may run at the same time.
//!
//! # In the guest
//!
//! | device | network device | addresses |
//! | --- | --- | --- |
//! | `rxe0` | `dummy0` | 10.99.0.1, 10.99.0.2, fd99::1, fd99::2 (loopback inside the device) |
//! | `rxe1` | `veth1` | 10.98.0.1, fd98::1 (a link to rxe2: packets can be lost or delayed with `tc`) |
//! | `rxe2` | `veth2` | 10.98.0.2, fd98::2 |
//! | none | `dummy1` | 172.16.0.1 |
//! | `rxe3` | `eth0` | 10.97.0.N, fd97::N; only in machine N of several ([`run_machines`], [`Machines`]) |
//!
//! With [`Transport::Siw`] the devices are called `siw0` to `siw3` and have iWARP's transport.
//!
//! `CMID_SOFTROCE` is 1, `CMID_TRANSPORT` is `rxe` or `siw`, and `CMID_KERNEL` is the kernel's release. The user is
//! root, the limit of locked memory is lifted, standard input is empty.
//!
//! # Exit statuses
//!
//! A program that exits with [`Error::exit_status`] uses statuses that differ from its command's:
//!
//! | status | meaning |
//! | --- | --- |
//! | 130 | interrupted (SIGINT, SIGTERM or SIGHUP) |
//! | 240 | the command took longer than [`Options::timeout`] |
//! | 241 | the guest's kernel failed: panic, oops, BUG, a task blocked for minutes |
//! | 242 | the guest ended without a report |
//! | 243 | anything else: QEMU, the guest's set-up, files, wrong options |
//! | 244 | packages are lacking and we are neither root nor have `sudo` |
//! | 245 | a download failed |
//! | else | the command's own; 128 + n if signal n ended it, 127 if it was not found |

#![forbid(unsafe_code)]

mod cache;
mod console;
mod error;
mod guest;
mod initramfs;
mod interrupt;
mod kernel;
mod machines;
mod modules;
mod options;
mod output;
pub mod packages;
pub mod progress;
mod qemu;
mod script;
mod segment;
mod session;
mod tool;
mod transport;
mod wire;

pub use cache::{cache_directory, lock};
pub use error::Error;
pub use kernel::Kernel;
pub use machines::Machines;
pub use options::Options;
pub use transport::Transport;
pub use wire::run_machines;

use std::{
    ffi::OsString,
    io::{self, Write},
};

/// Installs and downloads what a run on this kernel needs, so that [`run`] itself starts at once.
///
/// # Errors
///
/// See [`Error`].
pub fn prepare(kernel: Kernel) -> Result<(), Error> {
    let _signals = interrupt::Watch::begin()?;
    session::prepare(kernel).map(|_| ())
}

/// Runs a command in the guest. Its output goes to this process's output. Returns its exit status.
///
/// # Errors
///
/// See [`Error`]: the command did not end by itself.
pub fn run(options: &Options, command: &[OsString]) -> Result<u8, Error> {
    run_into(options, command, Box::new(io::stdout()), Box::new(io::stderr()))
}

/// Like [`run`], but writes the command's standard output and standard error to these writers.
///
/// # Errors
///
/// See [`Error`]. The run ends if a writer fails.
pub fn run_into(
    options: &Options,
    command: &[OsString],
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
) -> Result<u8, Error> {
    let _signals = interrupt::Watch::begin()?;
    session::run(options, None, command, stdout, stderr)
}
