//! Who was wrong: the caller (`Refused`), the world (`Failure`), or the device and its driver (`Fault`).

use crate::errno::Errno;
use crate::event::{AckToken, CmEvent};
use crate::key::{ChannelKey, IdKey, Token};
use crate::request_kind::RequestKind;
use crate::state::State;

/// The caller asked for something that makes no sense now. Nothing has changed and nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// A request on an id.
    #[error("{request} on {id} while {state}: {reason}")]
    Request {
        /// The id.
        id: IdKey,
        /// What was asked.
        request: RequestKind,
        /// The id's state, which has not changed.
        state: State,
        /// Why not.
        reason: RefuseReason,
    },
    /// No such id: destroyed, released, or of another core.
    #[error("{request} on {id}: there is no such id")]
    NoSuchId {
        /// The key that was given.
        id: IdKey,
        /// What was asked.
        request: RequestKind,
    },
    /// No such channel: closed, or of another core.
    #[error("there is no channel {channel}")]
    NoSuchChannel {
        /// The key that was given.
        channel: ChannelKey,
    },
    /// The channel still has ids on it, events to be taken, or belongs to an id in synchronous mode or to a listener.
    #[error("channel {channel} is in use")]
    ChannelInUse {
        /// The key that was given.
        channel: ChannelKey,
    },
    /// The channel cannot be read ([`Core::handle_unreadable`](crate::Core::handle_unreadable)).
    #[error("channel {channel} has failed")]
    ChannelFailed {
        /// The key.
        channel: ChannelKey,
    },
    /// The ack token is of another core, or its id is gone.
    #[error("nothing is owed for this ack token")]
    NothingOwed,
    /// As many as [`Limits`](crate::Limits) allow are there already.
    #[error("the limit on {0} is reached")]
    Full(&'static str),
}

/// Why a request on an id is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefuseReason {
    /// The kernel would answer EINVAL.
    #[error("not in this state")]
    WrongState,
    /// The id's device was removed: the kernel would answer ENXIO.
    #[error("its device is gone")]
    DeviceGone,
    /// librdmacm would follow a null pointer.
    #[error("the id is not bound to a device")]
    NoDevice,
    /// rdma_disconnect would return 0 and nothing would happen, ever; with a QP it would break the QP.
    #[error("there is no connection to end")]
    NotConnected,
    /// The kernel would make a later destroy wait for about 70 seconds.
    #[error("it would hold up the destruction of the id for more than a minute; destroy the id instead")]
    Stalls,
    /// The kernel would refuse it and reject the peer.
    #[error("it would break the connection")]
    Breaks,
    /// The peer has confirmed already.
    #[error("the connection stands already")]
    IsConnected,
    /// It is for a message that has been sent.
    #[error("the message that it is for has been sent")]
    AlreadySent,
    /// A teardown has nothing to wait for.
    #[error("the connection is over: what it used may be used again")]
    IsOver,
    /// Multicast groups are for datagrams.
    #[error("not for a connected service")]
    NotDatagram,
    /// An option of connections.
    #[error("not for a datagram service")]
    NotForDatagrams,
    /// `rdma_leave_multicast` could not tell two memberships by the same address apart.
    #[error("the id is a member of {0} already")]
    AlreadyMember(core::net::SocketAddr),
    /// No such membership on this id, or it is being left.
    #[error("the id has no membership {0}")]
    NoSuchGroup(crate::key::GroupKey),
    /// The memberships of an id stay with its core.
    #[error("the id is a member of multicast groups")]
    HasGroups,
    /// As many memberships as [`Limits`](crate::Limits) allow are there already.
    #[error("no room for another membership")]
    NoGroupLeft,
    /// Enhanced connection establishment needs a vendor.
    #[error("vendor 0 has no options")]
    NoVendor,
    /// Neither a QP on the id nor a QP number.
    #[error("the id has no QP and no QP number was given")]
    NoQp,
    /// With a QP on the id, librdmacm does this by itself.
    #[error("the id has a QP")]
    HasQp,
    /// The message that carries the QP number has been sent: the peer would not use this QP.
    #[error("the peer has been sent a QP number already")]
    NumberSent,
    /// More private data than the message holds.
    #[error("{len} bytes of private data where {max} fit")]
    PrivateDataTooLong {
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The source and the destination are of different address families.
    #[error("the addresses do not go together")]
    BadAddress,
    /// Another request on this id is under way.
    #[error("{0} is under way")]
    Busy(RequestKind),
    /// The id is in synchronous mode already.
    #[error("the id is in synchronous mode already")]
    AlreadySync,
    /// The request is for ids in synchronous mode.
    #[error("the id is not in synchronous mode")]
    NotSync,
    /// Its private channel has other ids on it: those of requests that are neither accepted nor migrated, if it is to be released;
    /// accepted ones, if it is to listen.
    #[error("other ids are on its channel")]
    SharesChannel,
    /// The id is not there yet: creating it is under way.
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
    /// As many channels as [`Limits`](crate::Limits) allow are there already.
    #[error("no channel is left for the id alone")]
    NoChannelLeft,
    /// The channel cannot be read ([`Core::handle_unreadable`](crate::Core::handle_unreadable)): the event that the request
    /// waits for would not come.
    #[error("channel {0} has failed")]
    ChannelFailed(ChannelKey),
    /// The id's events are delivered on the channel of a listener in synchronous mode, which is not read while the listener has as
    /// many untaken requests as it may have. The id is to be migrated first.
    #[error("the id is on the channel of its listener: migrate it first")]
    OnListenersChannel,
}

/// A ack token that the core does not take: it is of another core, or its id is gone. The ack token of another core is to be
/// given to that one.
#[derive(Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("nothing is owed here for an ack token of {}", .ack_token.owner())]
#[must_use = "the core that the ack token is of waits for it"]
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
    /// The errno that the real library answers, or would if it did not crash, hang or lie.
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
            | RefuseReason::AlreadySync
            | RefuseReason::NotSync
            | RefuseReason::AlreadySent
            | RefuseReason::NotDatagram
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

/// The request made sense, and the device could not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{call} while {state}: {errno}")]
pub struct Failure {
    /// What failed: the name of the request's [`RequestKind`], or of the device call that it began with.
    pub call: &'static str,
    /// The id's state after the failure; [`State::Idle`] for calls that have no id.
    pub state: State,
    /// What it left in errno.
    pub errno: Errno,
}

/// The device or its driver did something impossible. What it said is not believed; the core goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// An event that cannot happen in this state.
    #[error("{event} on {id} while {state}")]
    Event {
        /// The id it was about.
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
    /// The device could not close something; it may have leaked.
    #[error("{call} failed: {errno}")]
    Leak {
        /// The function that failed.
        call: &'static str,
        /// What it left in errno.
        errno: Errno,
    },
    /// Reading a channel failed. It is read again in the next turn.
    #[error("reading channel {channel} failed: {errno}")]
    Read {
        /// The channel.
        channel: ChannelKey,
        /// What it left in errno.
        errno: Errno,
    },
    /// Reading a channel failed [`READ_FAILURES_MAX`](crate::READ_FAILURES_MAX) times without an event in between. It is not
    /// read any more; [`Core::handle_unreadable`](crate::Core::handle_unreadable) says what becomes of its ids.
    #[error("channel {channel} has failed, it is not read any more: {errno}")]
    Channel {
        /// The channel.
        channel: ChannelKey,
        /// What the last read left in errno.
        errno: Errno,
    },
}

/// All three, for methods that submit a request and make its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The caller was wrong.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// The world was.
    #[error("failed: {0}")]
    Failed(#[from] Failure),
    /// The device or its driver was.
    #[error("fault: {0}")]
    Fault(#[from] Fault),
}

impl From<AckError> for Error {
    fn from(refused: AckError) -> Self {
        Error::Refused(refused.into())
    }
}

impl Error {
    /// The errno that the real library answers in this case.
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
