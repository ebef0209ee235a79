//! The error of a handshake.

use crate::errno::Errno;
use crate::error::{BoxError, Error, Refused};
use crate::event_result::EventError;
use crate::refuse_reason::RefuseReason;
use crate::request_kind::RequestKind;
use crate::words::debug_in_words;

/// The reason why a handshake failed. Its id is destroyed.
#[derive(thiserror::Error)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated")]
pub enum HandshakeError {
    /// A request was refused or failed, or the closure `attach` failed with an [`Error`].
    #[error(transparent)]
    Request(Error),
    /// The closure `attach` failed with this error, which is another one.
    #[error(transparent)]
    Attach(BoxError),
    /// An event ended it, such as REJECTED, UNREACHABLE or ROUTE_ERROR. The event contains the private data of a
    /// rejection.
    #[error("{during}: {error}")]
    Ended {
        /// The request that the event ended.
        during: RequestKind,
        /// The event.
        error: EventError,
    },
    /// The deadline has passed.
    #[error("{during}: timed out")]
    TimedOut {
        /// The request that was under way.
        during: RequestKind,
    },
}

debug_in_words!(HandshakeError);

impl HandshakeError {
    /// Returns the errno of the error: of the request or event, or `ETIMEDOUT`; `EIO` for an error of the application.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            HandshakeError::Request(error) => error.errno(),
            HandshakeError::Ended { error, .. } => error.errno,
            HandshakeError::TimedOut { .. } => Errno::ETIMEDOUT,
            HandshakeError::Attach(_) => Errno::EIO,
        }
    }

    /// Returns the private data with which the peer has rejected the connection; none if it was not rejected. The transport
    /// pads it with zeros (`rdma_reject`).
    #[must_use]
    pub fn reject_data(&self) -> Option<&[u8]> {
        match self {
            HandshakeError::Ended { error, .. } => error.reject_data(),
            HandshakeError::Request(_) | HandshakeError::Attach(_) | HandshakeError::TimedOut { .. } => None,
        }
    }

    /// The error of a closure `attach`.
    pub(super) fn of_attach(error: impl Into<BoxError>) -> Self {
        match error.into().downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(other) => HandshakeError::Attach(other),
        }
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        match error {
            // The deadline has passed before the request could start.
            Error::Refused(Refused::Request { request, reason: RefuseReason::TooLate, .. }) => {
                HandshakeError::TimedOut { during: request }
            }
            Error::Refused(_) | Error::Failed(_) | Error::Fault(_) => HandshakeError::Request(error),
        }
    }
}
