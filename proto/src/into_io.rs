//! Conversions to `std::io::Error`. The kind is that of the errno, and the inner error is the original one.

use std::io;

use crate::datapath::{BatchError, CreateError, DrainError, PostError};
use crate::errno::Errno;
use crate::error::{AckError, Error, Failure, Fault, Refused};
use crate::event_result::EventError;
use crate::handshake::HandshakeError;
use crate::memory;

/// Returns an `io::Error` of the kind of `errno` with `error` as its inner error.
pub(crate) fn io_error(errno: Errno, error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::Error::from(errno).kind(), error)
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        io::Error::from_raw_os_error(errno.0)
    }
}

macro_rules! into_io {
    ($($error:ty: $errno:expr;)+) => {
        $(
            impl From<$error> for io::Error {
                fn from(error: $error) -> Self {
                    io_error($errno(&error), error)
                }
            }
        )+
    };
}

into_io! {
    Error: |error: &Error| error.errno();
    Refused: |refused: &Refused| refused.errno();
    Failure: |failure: &Failure| failure.errno;
    Fault: |fault: &Fault| Error::Fault(*fault).errno();
    AckError: |error: &AckError| Refused::from(error).errno();
    EventError: |error: &EventError| error.errno;
    PostError: |error: &PostError| error.errno();
    BatchError: |error: &BatchError| error.errno();
    CreateError: |error: &CreateError| error.errno();
    DrainError: |error: &DrainError| error.errno();
    memory::MemoryError: |error: &memory::MemoryError| error.errno();
    HandshakeError: |error: &HandshakeError| error.errno();
}
