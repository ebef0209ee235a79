//! Errors of blocking calls.

use std::{fmt, io};

use cmid_proto::datapath::DrainError;
use cmid_proto::handshake::{BoxError, HandshakeError};
use cmid_proto::{Errno, EventError, RefuseReason, Refused};

/// The reason why a blocking call failed. Its `Debug` form is its text, because a `main` that returns it prints that.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request was refused, the device could not start it, or its events cannot be read.
    #[error(transparent)]
    Core(cmid_proto::Error),
    /// The request ended with an event, such as REJECTED or UNREACHABLE. The private data of a REJECTED may contain details
    /// ([`reject_data`](Error::reject_data)); the text contains its length.
    #[error("{during}: {error}")]
    Ended {
        /// The request.
        during: &'static str,
        /// The event, and the errno that librdmacm's synchronous mode returns.
        error: Box<EventError>,
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
    /// A [`Canceller`](crate::Canceller) for the waits cannot be created, such as for lack of descriptors (`EMFILE`).
    #[error("creating a canceller: {0}")]
    Canceller(Errno),
    /// The wait itself failed.
    #[error("waiting: {0}")]
    Wait(Errno),
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
            HandshakeError::Ended { during, error } => Error::Ended { during: during.name(), error: error.into() },
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
            Error::Ended { error, .. } => error.errno,
            Error::Wait(errno) | Error::Canceller(errno) => *errno,
            Error::TimedOut { .. } => Errno::ETIMEDOUT,
            Error::Drain(error) => error.errno(),
            Error::Cancelled { .. } => Errno::ECANCELED,
            Error::NotSynchronous { .. } => Errno::EINVAL,
            Error::Attach(_) => Errno::EIO,
        }
    }

    /// Returns the private data with which the peer has rejected the connection; none if it was not rejected. The transport
    /// pads it with zeros (`rdma_reject`).
    #[must_use]
    pub fn reject_data(&self) -> Option<&[u8]> {
        if let Error::Ended { error, .. } = self { error.reject_data() } else { None }
    }
}
