//! Errors: of the caller (`Refused`), of the environment (`Failure`), and of the device or its driver (`Fault`).

use alloc::boxed::Box;
use core::fmt;

use crate::cm_event::CmEvent;
use crate::datapath::{CreateCall, CreateError, CreateReason};
use crate::errno::Errno;
use crate::event::AckToken;
use crate::key::{ChannelKey, IdKey, Target};
use crate::refuse_reason::{RefuseReason, more_of};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::words::{Because, converts, debug_in_words};

/// An error of the application, on its way through a handshake. Any error converts into it.
pub type BoxError = Box<dyn core::error::Error + Send + Sync>;

/// The request is not possible now. Nothing has changed and no call was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A request on an id.
    #[error("{request} on {id} while {state}: {reason}")]
    Request {
        /// The id.
        id: IdKey,
        /// The request.
        request: RequestKind,
        /// The id's state, which has not changed.
        state: State,
        /// The reason.
        reason: RefuseReason,
    },
    /// No such id: destroyed, released, or of another core.
    #[error("{request} on {id}: there is no such id")]
    NoSuchId {
        /// The key of the request.
        id: IdKey,
        /// The request.
        request: RequestKind,
    },
    /// No such channel: closed, or of another core.
    #[error("there is no channel {channel}")]
    NoSuchChannel {
        /// The key of the request.
        channel: ChannelKey,
    },
    /// The channel still has ids or untaken events, or belongs to an id in synchronous mode or to a listener.
    #[error("channel {channel} is in use")]
    ChannelInUse {
        /// The key of the request.
        channel: ChannelKey,
    },
    /// Reads of the channel have failed too often ([`Core::handle_unreadable`](crate::Core::handle_unreadable)).
    #[error("channel {channel} has failed")]
    ChannelFailed {
        /// The key.
        channel: ChannelKey,
    },
    /// The ack token is of another core, or its id is gone.
    #[error("the ack token of {owner} is not valid here: the id is gone, or it is of another core")]
    NothingOwed {
        /// The [owner](AckToken::owner) of the ack token.
        owner: IdKey,
    },
    /// The number of objects is at its [`Limits`](crate::Limits).
    #[error("the limit on {} is reached{}", .0, more_of(.0))]
    Full(&'static str),
}

debug_in_words!(Refused, AckError, Failure, FailureCause, Fault, Error);

/// An ack token that the core does not accept: it is of another core, or its id is destroyed. Pass the token of another
/// core to that core.
#[derive(PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", Refused::from(self))]
#[must_use = "the core of the ack token still waits for this ack"]
pub struct AckError {
    /// The ack token.
    pub ack_token: AckToken,
}

impl From<&AckError> for Refused {
    fn from(refused: &AckError) -> Self {
        Refused::NothingOwed { owner: refused.ack_token.owner() }
    }
}

impl Refused {
    /// Returns the errno that librdmacm or the kernel would return.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Refused::Request { reason, .. } => reason.errno(),
            Refused::NoSuchId { .. } => Errno::ENOENT,
            Refused::NoSuchChannel { .. } => Errno::EBADF,
            Refused::ChannelInUse { .. } => Errno::EBUSY,
            Refused::ChannelFailed { .. } => Errno::EIO,
            Refused::NothingOwed { .. } => Errno::EINVAL,
            Refused::Full(_) => Errno::ENOMEM,
        }
    }
}

/// The device failed to carry out a permitted request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{call} on {target}{}: {errno}{}", While(*.target, *.state), Because(*.cause))]
pub struct Failure {
    /// The name of the request's [`RequestKind`], or of the first device call of the request.
    pub call: &'static str,
    /// The id or channel of the request. If it could not be created, its key is not valid.
    pub target: Target,
    /// The id's state after the failure; [`State::Idle`] for a channel, whose text has none.
    pub state: State,
    /// The errno of the call.
    pub errno: Errno,
    /// What causes this errno, if the core knows it.
    pub cause: Option<FailureCause>,
}

/// The state of an id, as a part of a text; a channel has none.
struct While(Target, State);

impl fmt::Display for While {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let While(Target::Id(_), state) = self { write!(f, " while {state}") } else { Ok(()) }
    }
}

impl Failure {
    /// The same, of a call that frees an object which nobody knows any more.
    pub(crate) const fn leak(self) -> Fault {
        Fault::Leak { call: self.call, target: self.target, errno: self.errno }
    }
}

/// What causes a [`Failure`], where the errno does not tell it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// The peer's address is of the loopback, or the wildcard. RoCE has no route to it (`cma_resolve_iboe_route`), and iWARP no
    /// device (`cma_bind_loopback`); only InfiniBand connects an id to it.
    #[error(
        "no RoCE or iWARP device reaches a loopback or wildcard address: connect to an address of the peer's RDMA device"
    )]
    LoopbackPeer,
    /// The closure of [`Drive::attach_qp`](crate::Drive::attach_qp) has failed with this error.
    #[error("{0}")]
    Create(CreateError),
}

impl FailureCause {
    /// Returns the cause of a creation's failure, if it says more than its errno.
    pub(crate) const fn of_creation(error: CreateError) -> Option<Self> {
        match (error.call(), error.reason()) {
            (None | Some(CreateCall::CreateQp), CreateReason::Device(_)) => None,
            _ => Some(FailureCause::Create(error)),
        }
    }
}

/// The device or its driver broke the contract of [`Core`](crate::Core). The core ignores the input and remains usable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An event that cannot happen in this state.
    #[error("{event} on {id} while {state}")]
    Event {
        /// The id of the event.
        id: IdKey,
        /// Its state, which has not changed.
        state: State,
        /// The event.
        event: CmEvent,
    },
    /// A CONNECT_REQUEST under a key that [`Core::wants_event`](crate::Core::wants_event) did not give.
    #[error("a connection request under the wrong key {id}")]
    WrongChild {
        /// The key.
        id: IdKey,
    },
    /// An event on a channel that does not exist.
    #[error("an event on channel {channel}, which does not exist")]
    NoSuchChannel {
        /// The key.
        channel: ChannelKey,
    },
    /// The device failed to close or destroy an object, which may have leaked.
    #[error("{call} on {target} failed: {errno}")]
    Leak {
        /// The function that failed.
        call: &'static str,
        /// The id or channel. Its key is not valid any more, except that of an id whose handshake has failed, which may be
        /// destroyed again.
        target: Target,
        /// The errno of the call.
        errno: Errno,
    },
    /// Reading a channel failed. It is read again in the next turn.
    #[error("reading channel {channel} failed: {errno}")]
    Read {
        /// The channel.
        channel: ChannelKey,
        /// The errno of the call.
        errno: Errno,
    },
    /// Reading a channel failed [`Limits::READ_FAILURES_MAX`](crate::Limits::READ_FAILURES_MAX) times without an event in between. It
    /// is not read any more. [`Core::handle_unreadable`](crate::Core::handle_unreadable) describes the effect on its
    /// ids.
    #[error("channel {channel} has failed, it is not read any more: {errno}")]
    Channel {
        /// The channel.
        channel: ChannelKey,
        /// The errno of the last read.
        errno: Errno,
    },
}

/// The errors of methods that submit a request and make its call. Its text contains that of its part, so it has no
/// [source](core::error::Error::source).
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The request is not possible now.
    #[error("refused: {0}")]
    Refused(Refused),
    /// The device failed to carry it out.
    #[error("failed: {0}")]
    Failed(Failure),
    /// The device or its driver broke the contract.
    #[error("fault: {0}")]
    Fault(Fault),
}

converts! {
    Refused => Error: Error::Refused;
    Failure => Error: Error::Failed;
    Fault => Error: Error::Fault;
    AckError => Error: |refused: AckError| Error::Refused(Refused::from(&refused));
}

impl Error {
    /// Returns the fault that it is.
    pub(crate) fn fault(&self) -> Option<Fault> {
        if let Error::Fault(fault) = *self { Some(fault) } else { None }
    }

    /// Returns the errno that librdmacm or the kernel would return.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Error::Refused(refused) => refused.errno(),
            Error::Failed(failure) => failure.errno,
            Error::Fault(Fault::Event { .. } | Fault::WrongChild { .. } | Fault::NoSuchChannel { .. }) => Errno::EIO,
            Error::Fault(Fault::Leak { errno, .. } | Fault::Read { errno, .. } | Fault::Channel { errno, .. }) => {
                *errno
            }
        }
    }
}
