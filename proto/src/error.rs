//! Errors: of the caller (`Refused`), of the environment (`Failure`), and of the device or its driver (`Fault`).

use crate::cm_event::CmEvent;
use crate::datapath::{CreateError, CreateReason};
use crate::errno::Errno;
use crate::event::AckToken;
use crate::key::{ChannelKey, IdKey, Target, Token};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::words::{Because, debug_in_words};

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
    #[error("the ack token is not valid here: its id is gone, or it is of another core")]
    NothingOwed,
    /// The number of objects is at its [`Limits`](crate::Limits).
    #[error("the limit on {} is reached{}", .0, more_of(.0))]
    Full(&'static str),
}

/// The reason why a request on an id is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RefuseReason {
    /// The kernel would return EINVAL.
    #[error("not in this state")]
    WrongState,
    /// The id's device was removed: the kernel would return ENXIO.
    #[error("its device is gone")]
    DeviceGone,
    /// librdmacm would follow a null pointer.
    #[error("the id is not bound to a device")]
    NoDevice,
    /// `rdma_disconnect` would return 0 and send nothing; it would move a QP of the id to its error state.
    #[error("there is no connection to end")]
    NotConnected,
    /// A later destroy would block in the kernel for about 70 seconds (`cm_send_rej_locked`).
    #[error("it would delay a later destroy by more than a minute; destroy the id instead")]
    Stalls,
    /// The kernel would refuse it and reject the peer.
    #[error("it would break the connection")]
    Breaks,
    /// The peer has confirmed already.
    #[error("the connection is already established")]
    IsConnected,
    /// The value of the request is part of a message, a route or a QP that was made already, so it would have no effect.
    #[error("too late: the message, route or QP that would carry it has been made")]
    AlreadySent,
    /// A value that does not fit into its field. The kernel would cut it off, or fail later.
    #[error("{field} of {value}, more than the maximum of {max}")]
    TooLarge {
        /// The option or field.
        field: &'static str,
        /// The given value.
        value: u32,
        /// The maximum.
        max: u32,
    },
    /// The connection has ended: a teardown has no event to wait for.
    #[error("the connection has ended; its memory may be reused")]
    IsOver,
    /// Multicast groups are only for datagrams.
    #[error("not for a connected service")]
    NotDatagram,
    /// The transport of its device has no datagram services.
    #[error("the transport has no datagram services")]
    NoDatagrams,
    /// The option is only for connections.
    #[error("not for a datagram service")]
    NotForDatagrams,
    /// The address to join is that of a host or of all hosts.
    #[error("{0} is not the address of a multicast group")]
    NoGroup(core::net::SocketAddr),
    /// `rdma_leave_multicast` cannot distinguish two memberships of one address.
    #[error("the id is a member of {0} already")]
    AlreadyMember(core::net::SocketAddr),
    /// The id has no such membership, or it is being left.
    #[error("the id has no membership {0}")]
    NoSuchGroup(crate::key::GroupKey),
    /// The memberships of an id stay with its core.
    #[error("the id is a member of multicast groups")]
    HasGroups,
    /// The number of memberships is at its [`Limits`](crate::Limits).
    #[error("no room for another membership")]
    NoGroupLeft,
    /// Enhanced connection establishment needs a vendor.
    #[error("vendor 0 has no options")]
    NoVendor,
    /// The id has no QP, and the request no QP number.
    #[error("the id has no QP and no QP number was given")]
    NoQp,
    /// The id has a QP: librdmacm then makes this request itself.
    #[error("the id has a QP")]
    HasQp,
    /// The message with the QP number was sent already, so the peer would not use this QP.
    #[error("the peer has been sent a QP number already")]
    NumberSent,
    /// More private data than the message holds.
    #[error("{len} bytes of private data, more than the maximum of {max}")]
    PrivateDataTooLong {
        /// The given length.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// The source and the destination are of different address families.
    #[error("the addresses are of different families")]
    BadAddress,
    /// The id is bound already, also by a failed resolve. The kernel would ignore the given source.
    #[error("the id is bound already, so its address is the source: give none")]
    IsBound,
    /// The id is bound to a loopback address, or may be, because a resolve from one has failed. The kernel takes it for the
    /// wildcard (`cma_any_addr`), so a listener on it would accept connection requests from all networks of the host.
    #[error(
        "the kernel takes its loopback address for the wildcard, and other hosts could connect: bind it to an address of \
         an RDMA device, or to the wildcard"
    )]
    OnLoopback,
    /// An IPv4 address in the form of IPv6 (`::ffff:10.0.0.1`). The kernel's connection manager has no route to it and binds
    /// none: use the IPv4 address.
    #[error("the address is an IPv4-mapped address of IPv6, which the kernel does not translate: use the IPv4 address")]
    MappedAddress,
    /// Another request on this id is under way.
    #[error("{0} is under way")]
    Busy(RequestKind),
    /// The id is in synchronous mode already.
    #[error("the id is in synchronous mode already")]
    AlreadySync,
    /// The request is for ids in synchronous mode.
    #[error("the id is not in synchronous mode")]
    NotSync,
    /// Other ids are on the id's private channel. For a release: ids of requests that are neither accepted nor
    /// migrated. For a listen: accepted ids.
    #[error("other ids are on its channel")]
    SharesChannel,
    /// The device has not created the id yet.
    #[error("the id is still being created")]
    BeingCreated,
    /// The application has not acked every event of the id.
    #[error("events of the id are not acked")]
    OwesAcks,
    /// The channel to migrate to does not exist.
    #[error("there is no channel {0}")]
    NoSuchChannel(ChannelKey),
    /// The deadline has passed already.
    #[error("the deadline has passed")]
    TooLate,
    /// The number of channels is at its [`Limits`](crate::Limits).
    #[error("the limit on channels is reached{}, and the id needs its own", more_of("channels"))]
    NoChannelLeft,
    /// Reads of the channel have failed too often ([`Core::handle_unreadable`](crate::Core::handle_unreadable)), so the
    /// event that the request waits for would not come.
    #[error("channel {0} has failed")]
    ChannelFailed(ChannelKey),
    /// The id's events are delivered on the channel of a listener in synchronous mode. That channel is not read while
    /// the listener's backlog of requests is full. Migrate the id first.
    #[error("the id is on the channel of its listener: migrate it first")]
    OnListenersChannel,
}

/// What to change at a limit that has two causes.
fn more_of(objects: &str) -> &'static str {
    if objects == "channels" { " (Limits::channels; with cmid-mio, the number of its tokens)" } else { "" }
}

debug_in_words!(Refused, RefuseReason, Failure, FailureCause, Fault, Error);

/// An ack token that the core does not accept: it is of another core, or its id is destroyed. Pass the token of another
/// core to that core.
#[derive(Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the ack token of {} is not valid here: the id is gone, or it is of another core", .ack_token.owner())]
#[must_use = "the core of the ack token still waits for this ack"]
pub struct AckError {
    /// The ack token.
    pub ack_token: AckToken,
}

impl From<&AckError> for Refused {
    fn from(_: &AckError) -> Self {
        Refused::NothingOwed
    }
}

impl From<AckError> for Refused {
    fn from(refused: AckError) -> Self {
        Refused::from(&refused)
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
            Refused::NothingOwed => Errno::EINVAL,
            Refused::Full(_) => Errno::ENOMEM,
        }
    }
}

impl RefuseReason {
    const fn errno(self) -> Errno {
        match self {
            RefuseReason::WrongState
            | RefuseReason::NoDevice
            | RefuseReason::Stalls
            | RefuseReason::Breaks
            | RefuseReason::NoQp
            | RefuseReason::HasQp
            | RefuseReason::NumberSent
            | RefuseReason::PrivateDataTooLong { .. }
            | RefuseReason::BadAddress
            | RefuseReason::OnLoopback
            | RefuseReason::IsBound
            | RefuseReason::NoGroup(_)
            | RefuseReason::MappedAddress
            | RefuseReason::AlreadySync
            | RefuseReason::NotSync
            | RefuseReason::AlreadySent
            | RefuseReason::TooLarge { .. }
            | RefuseReason::NotDatagram
            | RefuseReason::NoDatagrams
            | RefuseReason::NotForDatagrams
            | RefuseReason::NoVendor
            | RefuseReason::IsOver => Errno::EINVAL,
            RefuseReason::DeviceGone => Errno::ENXIO,
            RefuseReason::NotConnected => Errno::ENOTCONN,
            RefuseReason::IsConnected => Errno::EISCONN,
            RefuseReason::AlreadyMember(_) => Errno::EADDRINUSE,
            RefuseReason::NoSuchGroup(_) => Errno::EADDRNOTAVAIL,
            RefuseReason::Busy(_)
            | RefuseReason::OwesAcks
            | RefuseReason::SharesChannel
            | RefuseReason::BeingCreated
            | RefuseReason::HasGroups
            | RefuseReason::OnListenersChannel => Errno::EBUSY,
            RefuseReason::ChannelFailed(_) => Errno::EIO,
            RefuseReason::NoSuchChannel(_) => Errno::EBADF,
            RefuseReason::TooLate => Errno::ETIMEDOUT,
            RefuseReason::NoChannelLeft | RefuseReason::NoGroupLeft => Errno::ENOMEM,
        }
    }
}

/// The device failed to carry out a permitted request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{call} on {target} while {state}: {errno}{}", Because(*.cause))]
pub struct Failure {
    /// The name of the request's [`RequestKind`], or of the first device call of the request.
    pub call: &'static str,
    /// The id or channel of the request. If it could not be created, its key is not valid.
    pub target: Target,
    /// The id's state after the failure; [`State::Idle`] for a channel.
    pub state: State,
    /// The errno of the call.
    pub errno: Errno,
    /// What causes this errno, if the core knows it.
    pub cause: Option<FailureCause>,
}

/// What causes a [`Failure`], where the errno does not tell it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// The peer's address is of the loopback. RoCE has no route to it (`cma_resolve_iboe_route`), and iWARP no device
    /// (`cma_bind_loopback`); only InfiniBand connects an id to it.
    #[error("no RoCE or iWARP device reaches a loopback address: connect to an address of the peer's RDMA device")]
    LoopbackPeer,
    /// The closure of [`Drive::attach_qp`](crate::Drive::attach_qp) has failed with this error.
    #[error("{0}")]
    Create(CreateError),
}

impl FailureCause {
    /// Returns the cause of a creation's failure, if it says more than its errno.
    pub(crate) const fn of_creation(error: CreateError) -> Option<Self> {
        match (error.call(), error.reason()) {
            (None, CreateReason::Device(_)) => None,
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
    /// An outcome for a call that is not under way.
    #[error("an outcome for a call that is not under way")]
    NoSuchCall {
        /// The token.
        token: Token,
    },
    /// The device failed to close or destroy an object, which may have leaked.
    #[error("{call} on {target} failed: {errno}")]
    Leak {
        /// The function that failed.
        call: &'static str,
        /// The id or channel. Its key is not valid any more.
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
    /// Reading a channel failed [`READ_FAILURES_MAX`](crate::READ_FAILURES_MAX) times without an event in between. It
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

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Error::Refused(refused)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Failed(failure)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Fault(fault)
    }
}

impl From<AckError> for Error {
    fn from(refused: AckError) -> Self {
        Error::Refused(refused.into())
    }
}

impl Error {
    /// Returns the errno that librdmacm or the kernel would return.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Error::Refused(refused) => refused.errno(),
            Error::Failed(failure) => failure.errno,
            Error::Fault(
                Fault::Event { .. } | Fault::WrongChild { .. } | Fault::NoSuchCall { .. } | Fault::NoSuchChannel { .. },
            ) => Errno::EIO,
            Error::Fault(Fault::Leak { errno, .. } | Fault::Read { errno, .. } | Fault::Channel { errno, .. }) => {
                *errno
            }
        }
    }
}
