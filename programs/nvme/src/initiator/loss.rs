//! Why a controller was lost or not connected, and whether another attempt can help.

use std::time::Duration;

use cmid_mio::proto::handshake::HandshakeError;
use cmid_mio::proto::redial::Cause;
use cmid_mio::proto::{CmEvent, Error, Event};

use super::link::LinkError;
use crate::controller::ControllerError;
use crate::wire::{CmError, CmReject, WireError};

/// Why a controller was lost or not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The connection was not made.
    #[error("queue {qid}: {error}")]
    Handshake {
        /// The queue.
        qid: u16,
        /// The error.
        #[source]
        error: Box<HandshakeError>,
    },
    /// The target has rejected the connection.
    #[error("queue {qid}: the target rejects the connection: {reason}")]
    Rejected {
        /// The queue.
        qid: u16,
        /// Its reason.
        reason: CmError,
    },
    /// The target has accepted the connection with wrong data.
    #[error("queue {qid}: {error}")]
    Accepted {
        /// The queue.
        qid: u16,
        /// What is wrong.
        error: WireError,
    },
    /// The controller was not brought up.
    #[error("{0}")]
    Controller(#[from] ControllerError),
    /// A connection has failed.
    #[error("queue {qid}: {error}")]
    Link {
        /// The queue.
        qid: u16,
        /// The error.
        #[source]
        error: LinkError,
    },
    /// A connection has ended.
    #[error("queue {qid}: {event}")]
    Ended {
        /// The queue.
        qid: u16,
        /// The event, in words.
        event: String,
    },
    /// A command was not answered in time.
    #[error("queue {qid}: a command was not answered within {limit:?}")]
    Unanswered {
        /// The queue.
        qid: u16,
        /// The limit.
        limit: Duration,
    },
    /// A connection was not moved to the reactor that is to serve it.
    #[error("queue {qid}: {error}")]
    Moved {
        /// The queue.
        qid: u16,
        /// The error.
        #[source]
        error: Error,
    },
    /// The application has [reset](super::Initiator::reset) it.
    #[error("the controller is reset")]
    Reset,
    /// A reactor has panicked.
    #[error("a reactor has panicked")]
    Reactor,
    /// The keep-alive was not answered in time.
    #[error("the keep-alive was not answered within {0:?}")]
    KeepAlive(Duration),
    /// The controller was not live in time.
    #[error("the controller was not live in time")]
    Late,
    /// The poll of the application cannot watch a completion queue.
    #[error("{0}")]
    Poll(#[from] std::io::Error),
}

impl Loss {
    /// The error of a handshake, with the reason of the target if it has told one.
    pub(super) fn of_handshake(qid: u16, error: HandshakeError) -> Self {
        match error.reject_data().and_then(CmReject::decode) {
            Some(reason) => Loss::Rejected { qid, reason },
            None => Loss::Handshake { qid, error: Box::new(error) },
        }
    }

    /// The loss that an event of an established connection tells of.
    pub(super) fn of_event(qid: u16, event: &Event) -> Option<Self> {
        // These do not end it.
        let is_news = matches!(event.cm(), Some(CmEvent::AddrChange | CmEvent::TimewaitExit | CmEvent::Established));
        (!is_news).then(|| Loss::Ended { qid, event: event.to_string() })
    }

    /// Whether another attempt can help, for [`Redial`](cmid_mio::proto::redial::Redial).
    pub(super) fn cause(&self) -> Cause {
        match self {
            Loss::Handshake { error, .. } => Cause::of(error),
            // The target counts its resources again later; all else is in the parameters of the call.
            Loss::Rejected { reason: CmError::NO_RESOURCES, .. } => Cause::Heals,
            Loss::Rejected { .. } => Cause::Refused,
            Loss::Controller(error) if error.is_final() => Cause::Refused,
            Loss::Controller(_)
            | Loss::Accepted { .. }
            | Loss::Link { .. }
            | Loss::Ended { .. }
            | Loss::Unanswered { .. }
            | Loss::Moved { .. }
            | Loss::Reset
            | Loss::Reactor
            | Loss::KeepAlive(_)
            | Loss::Late
            | Loss::Poll(_) => Cause::Heals,
        }
    }
}
