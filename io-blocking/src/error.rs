//! Errors of blocking calls.

use std::{fmt, io};

use cmid_proto::datapath::DrainError;
use cmid_proto::handshake::{BoxError, HandshakeError};
use cmid_proto::{Errno, Event, EventError, RefuseReason, Refused};

/// The reason why a blocking call failed. Its `Debug` form is its text, because a `main` that returns it prints that.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request was refused, the device could not start it, or its events cannot be read.
    #[error(transparent)]
    Core(cmid_proto::Error),
    /// The request ended with this event, such as REJECTED or UNREACHABLE. The private data of a REJECTED may contain
    /// details; the text contains its length.
    #[error("{during}: {errno} ({event}{})", with_data(.event))]
    Ended {
        /// The request.
        during: &'static str,
        /// The errno that librdmacm's synchronous mode returns.
        errno: Errno,
        /// The event that ended it.
        event: Box<Event>,
    },
    /// The deadline passed.
    #[error("{during}: timed out")]
    TimedOut {
        /// The request.
        during: &'static str,
    },
    /// A [`Canceller`](crate::Canceller) ended the wait.
    #[error("{during}: cancelled")]
    Cancelled {
        /// The request.
        during: &'static str,
    },
    /// The request was made before the id entered synchronous mode: its end is an ordinary event.
    #[error("{during}: not made in synchronous mode")]
    NotSynchronous {
        /// The request.
        during: &'static str,
    },
    /// The closure of a connect or accept failed with this error of the application.
    #[error(transparent)]
    Attach(BoxError),
    /// The QP is not drained.
    #[error("drain: {0}")]
    Drain(DrainError),
    /// The wait itself failed.
    #[error("waiting: {0}")]
    Wait(Errno),
}

/// The length of the private data in words, without the zeros that the transport has added; nothing without data.
fn with_data(event: &Event) -> String {
    match event.private_data.iter().rposition(|&byte| byte != 0) {
        None => String::new(),
        Some(last) => format!(" with {} bytes of private data", last + 1),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<cmid_proto::Error> for Error {
    fn from(error: cmid_proto::Error) -> Self {
        if let cmid_proto::Error::Refused(Refused::Request { request, reason: RefuseReason::TooLate, .. }) = error {
            // The time limit passed before the request could start.
            Error::TimedOut { during: request.name() }
        } else {
            Error::Core(error)
        }
    }
}

impl From<HandshakeError> for Error {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Request(error) => Error::Core(error),
            HandshakeError::Attach(error) => Error::Attach(error),
            HandshakeError::Ended { during, error: EventError { errno, event } } => {
                Error::Ended { during: during.name(), errno, event: Box::new(event) }
            }
            HandshakeError::TimedOut { during } => Error::TimedOut { during: during.name() },
            other => Error::Wait(other.errno()),
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        cmid_proto::Error::from(refused).into()
    }
}

/// The kind is that of the errno, and the inner error is the original one.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(io::Error::from(error.errno()).kind(), error)
    }
}

impl Error {
    /// Returns the errno of the error; `ETIMEDOUT` for a timeout, `EIO` for an error of the application.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Error::Core(error) => error.errno(),
            Error::Ended { errno, .. } | Error::Wait(errno) => *errno,
            Error::TimedOut { .. } => Errno::ETIMEDOUT,
            Error::Drain(error) => error.errno(),
            Error::Cancelled { .. } => Errno::ECANCELED,
            Error::NotSynchronous { .. } => Errno::EINVAL,
            Error::Attach(_) => Errno::EIO,
        }
    }
}
