//! Errors of a run other than the command's own.

use std::{io, path::Path, time::Duration};

/// Why a command did not end by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Packages are missing and this user may not install them.
    #[error("these Debian packages are needed, and we are neither root nor have sudo: {packages}")]
    NotRoot {
        /// Their names, separated by spaces.
        packages: String,
    },
    /// A download failed.
    #[error("{what}: the download failed; is there a network?\n{detail}")]
    Network {
        /// What was being done.
        what: String,
        /// The output of the downloader.
        detail: String,
    },
    /// A program on the host failed, could not be started, or took too long.
    #[error("{what}: {detail}")]
    Tool {
        /// The program and its arguments.
        what: String,
        /// Its status and its messages.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Files {
        /// The file, or what was being done with it.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The options or the command are invalid.
    #[error("{0}")]
    Usage(String),
    /// Something on the host is not as expected.
    #[error("{0}")]
    Unexpected(String),
    /// The guest could not be set up.
    #[error("the guest could not be set up: {reason}; its console:\n{console}")]
    Guest {
        /// The message of the guest's init.
        reason: String,
        /// The end of the guest's console.
        console: String,
    },
    /// The guest's kernel failed.
    #[error("the guest's kernel failed: {line}; its console:\n{console}")]
    GuestKernel {
        /// The line of the failure.
        line: String,
        /// The end of the guest's console.
        console: String,
    },
    /// The guest ended without a report.
    #[error("the guest ended without a report; QEMU said: {qemu}\nits console:\n{console}")]
    GuestDied {
        /// QEMU's messages.
        qemu: String,
        /// The end of the guest's console.
        console: String,
    },
    /// The command took too long.
    #[error("the command did not end within {} s; its machine was stopped", limit.as_secs_f32())]
    Timeout {
        /// [`crate::Options::timeout`].
        limit: Duration,
    },
    /// This process received a signal to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The exit status for a program that runs a command in the guest; see the crate's documentation.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Interrupted => 130,
            Error::Timeout { .. } => 240,
            Error::GuestKernel { .. } => 241,
            Error::GuestDied { .. } => 242,
            Error::Tool { .. } | Error::Files { .. } | Error::Usage(_) | Error::Unexpected(_) | Error::Guest { .. } => {
                243
            }
            Error::NotRoot { .. } => 244,
            Error::Network { .. } => 245,
        }
    }
}

/// Adds the context of an I/O error.
pub(crate) trait WithPath<T> {
    fn about(self, what: impl Into<String>) -> Result<T, Error>;

    fn about_file(self, path: &Path) -> Result<T, Error>
    where
        Self: Sized,
    {
        self.about(path.display().to_string())
    }
}

impl<T> WithPath<T> for io::Result<T> {
    fn about(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|source| Error::Files { what: what.into(), source })
    }
}
