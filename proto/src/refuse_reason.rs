//! The reasons for refusals.

use crate::errno::Errno;
use crate::key::ChannelKey;
use crate::request_kind::RequestKind;
use crate::words::debug_in_words;

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
    /// `rdma_disconnect` would return 0 and send nothing; it would move a QP of the id to its error state. On iWARP it would block
    /// while the answer to a connect is awaited, also after the deadline of that.
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
    #[error("the connection has ended")]
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
    #[error("the id has no QP; a connect or an accept can have a QP number instead")]
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
    /// The id is bound already, or may be, because a bind, a resolve or a listen of it has failed. The kernel ignores
    /// the source of a bound id.
    #[error(
        "the id is bound already, or a failed request may have bound it, and then its address is the source: give none"
    )]
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
    /// Other ids are on the id's private channel: ids of requests that are neither accepted nor migrated.
    #[error("other ids are on its channel")]
    SharesChannel,
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

impl RefuseReason {
    /// Returns the errno of [`Refused::errno`](crate::Refused::errno).
    pub(crate) const fn errno(self) -> Errno {
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
            | RefuseReason::HasGroups
            | RefuseReason::OnListenersChannel => Errno::EBUSY,
            RefuseReason::ChannelFailed(_) => Errno::EIO,
            RefuseReason::NoSuchChannel(_) => Errno::EBADF,
            RefuseReason::TooLate => Errno::ETIMEDOUT,
            RefuseReason::NoChannelLeft | RefuseReason::NoGroupLeft => Errno::ENOMEM,
        }
    }
}

/// What to change at a limit that has two causes.
pub(crate) fn more_of(objects: &str) -> &'static str {
    if objects == "channels" { " (Limits::channels; with cmid-mio, the number of its tokens)" } else { "" }
}

debug_in_words!(RefuseReason);
