//! Requests of the application.

use core::net::SocketAddr;

use crate::columns::columns;
use crate::event::{ConnParam, Ece};
use crate::key::{ChannelKey, GroupKey};
use crate::request_kind::RequestKind;

columns! {
    /// The services that an id can use (`enum rdma_port_space`, rdma_create_id(3)).
    #[doc(alias = "rdma_port_space")]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "UPPERCASE"))]
    pub enum PortSpace {
        /// `RDMA_PS_TCP`: reliable connections.
        #[doc(alias = "RDMA_PS_TCP")]
        Tcp = "TCP",
        /// `RDMA_PS_IB`: any InfiniBand service; here its reliable connected one.
        #[doc(alias = "RDMA_PS_IB")]
        Ib = "IB",
        /// `RDMA_PS_UDP`: unreliable datagrams and multicast.
        #[doc(alias = "RDMA_PS_UDP")]
        Udp = "UDP",
        /// `RDMA_PS_IPOIB`: as UDP, on InfiniBand devices only.
        #[doc(alias = "RDMA_PS_IPOIB")]
        Ipoib = "IPOIB",
    }
}

/// The kind of communication of a port space. It determines the effect of connect and accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A connection of two reliable QPs (REQ, REP, RTU).
    Connected,
    /// The address of a datagram QP is looked up (SIDR); there is no connection.
    Datagram,
}

impl PortSpace {
    /// Returns the number in `enum rdma_port_space`.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            PortSpace::Tcp => 0x0106,
            PortSpace::Ib => 0x013f,
            PortSpace::Udp => 0x0111,
            PortSpace::Ipoib => 0x0002,
        }
    }

    /// Returns the kind of communication (`rdma_create_id` of librdmacm: the type of the id's QP).
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            PortSpace::Tcp | PortSpace::Ib => Service::Connected,
            PortSpace::Udp | PortSpace::Ipoib => Service::Datagram,
        }
    }
}

/// An option of an id (rdma_set_option(3), level `RDMA_OPTION_ID`).
#[doc(alias("rdma_set_option", "RDMA_OPTION_ID"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum CmOption {
    /// The type of service of the packets of both sides. On InfiniBand and RoCE the client's counts, if it is set before
    /// the route is resolved, or before a join; that of a listener, or of the id of a request, has no effect. On iWARP
    /// it counts until the connect or the listen. Refused as [sent](crate::RefuseReason::AlreadySent) afterwards.
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    Tos(u8),
    /// Several ids may bind to the address, and one of them may listen. On: in any state but listening; off: only while
    /// idle.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    ReuseAddr(bool),
    /// A listener on an IPv6 wildcard address does not accept IPv4; while idle or bound.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    AfOnly(bool),
    /// The time after which an unacknowledged packet is sent again: 4.096 µs times two to the power of this value.
    /// At most 31; 0 means no limit. Connected services only. It counts for the QP of this side only: on the client until
    /// the connection is established, for the id of a request until it is accepted; an id does not inherit it from
    /// its listener. Refused as [sent](crate::RefuseReason::AlreadySent) afterwards. On RoCE it also changes the timers
    /// of the connection manager and the QP of the other side, if it is set before the route is resolved.
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    AckTimeout(u8),
}

impl CmOption {
    /// Returns the column of the request table for this option.
    #[must_use]
    pub const fn request_kind(self) -> RequestKind {
        match self {
            CmOption::Tos(_) => RequestKind::SetTos,
            CmOption::ReuseAddr(true) => RequestKind::ReuseAddr,
            CmOption::ReuseAddr(false) => RequestKind::NoReuseAddr,
            CmOption::AfOnly(_) => RequestKind::SetAfOnly,
            CmOption::AckTimeout(_) => RequestKind::SetAckTimeout,
        }
    }
}

/// The reason code of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RejectReason {
    /// 28: rejected by the application (rdma_reject(3)).
    Consumer,
    /// 35: rejected because of the peer's enhanced connection establishment (`rdma_reject_ece`).
    Ece,
}

/// How events are acknowledged (rdma_ack_cm_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Acks {
    /// Each event carries an [`AckToken`](crate::AckToken). A migrate and a destroy wait until every token of their id
    /// is acked.
    Explicit,
    /// An event counts as acked when the application takes it.
    OnDelivery,
}

/// A request on an id that exists. A refused request changes nothing.
///
/// The feature `serde` leaves the private data out: it may be secret.
// The tag has a place of its own, not one in an address.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Request<'a> {
    /// Bind to a local address; port 0 selects a free one (rdma_bind_addr(3)).
    Bind {
        /// The local address.
        addr: SocketAddr,
    },
    /// Find the device and the link address for a destination (rdma_resolve_addr(3)).
    ResolveAddr {
        /// The local address; `None` to let the kernel select one. Refused if the id is bound already, or may be by a
        /// bind, a resolve or a listen that has failed: the address of the id is then the source.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
        src: Option<SocketAddr>,
        /// The peer.
        dst: SocketAddr,
    },
    /// Find the path to the destination (rdma_resolve_route(3)).
    ResolveRoute,
    /// Accept connection requests (rdma_listen(3)).
    Listen {
        /// The maximum number of unread requests in the kernel; 0, or more than the kernel's maximum, selects that
        /// maximum.
        backlog: i32,
    },
    /// Record that the application has created a QP for the id. Makes no device call: the data path creates the QP.
    AttachQp,
    /// Record that the id has no QP any more. Makes no device call: the data path destroys the QP.
    DetachQp,
    /// Send a connection request to the peer (rdma_connect(3)).
    Connect {
        /// Parameters; the default is that of a NULL pointer in librdmacm.
        param: ConnParam,
        /// At most 56 bytes; 180 for datagrams.
        #[cfg_attr(feature = "serde", serde(skip))]
        private_data: &'a [u8],
    },
    /// Accept a request (rdma_accept(3)). An id on its listener's channel is first migrated to its own `channel`
    /// (rdma_migrate_id(3)). If the migration fails, the accept can be repeated.
    Accept {
        /// Parameters; the default lowers the peer's parameters to the limits of the device.
        param: ConnParam,
        /// At most 196 bytes; 136 for datagrams.
        #[cfg_attr(feature = "serde", serde(skip))]
        private_data: &'a [u8],
    },
    /// Reject a connection request or the answer to one (rdma_reject(3)).
    Reject {
        /// The reason that the peer receives.
        reason: RejectReason,
        /// At most 148 bytes; 136 for datagrams.
        #[cfg_attr(feature = "serde", serde(skip))]
        private_data: &'a [u8],
    },
    /// Confirm a CONNECT_RESPONSE (rdma_establish(3)).
    Establish,
    /// End the connection, or confirm its end by the peer (rdma_disconnect(3)).
    Disconnect,
    /// End the connection, and wait until no packet of it can arrive any more: until TIMEWAIT_EXIT, or the deadline.
    /// Then the memory of the connection may be reused.
    Teardown,
    /// Report that a message has arrived on the QP before the peer's confirmation (rdma_notify(3) with
    /// `IBV_EVENT_COMM_EST`). Other event codes are not supported: one breaks the connection, and the kernel refuses
    /// the rest.
    Notify,
    /// Wait for the next request (rdma_get_request(3)); for a listener in synchronous mode. When this request ends, its
    /// event counts as delivered: the new id belongs to the application and outlives the listener. If the listener
    /// leaves synchronous mode, the wait ends without an event, and connection requests are delivered as events.
    GetRequest,
    /// Join a multicast group (rdma_join_multicast_ex(3)); MULTICAST_JOIN or MULTICAST_ERROR follows.
    Join {
        /// The group's address, a multicast address; on InfiniBand the wildcard for a new group. One membership per address.
        addr: SocketAddr,
        /// Only send to the group: the QP is not attached to it.
        send_only: bool,
    },
    /// Leave a multicast group (rdma_leave_multicast(3)). Discards the group's undelivered events and ends an open
    /// join. Waits for the acks of the group's events, without a deadline, and then ends with an event.
    Leave {
        /// The membership.
        group: GroupKey,
    },
    /// Set an option (rdma_set_option(3)).
    SetOption {
        /// The option and its value.
        option: CmOption,
    },
    /// Set the options for enhanced connection establishment that the next connect or accept sends
    /// (rdma_set_local_ece(3)).
    SetEce {
        /// The options to send.
        ece: Ece,
    },
    /// Report events on another channel from now on; `None` puts the id into synchronous mode (rdma_migrate_id(3)).
    /// Waits for the acks of the id's events. If it has to wait, the `Migrated` event of the previous migration must
    /// have been taken. Migrating a listener makes no device call.
    Migrate {
        /// The new channel.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
        to: Option<ChannelKey>,
    },
    /// Free the id (rdma_destroy_id(3)). Discards the id's undelivered events, as the kernel does. Waits for the acks
    /// of the id's events. On an iWARP device it also waits for the end of a connect, because the kernel's call would
    /// block until then.
    Destroy,
    /// Free the id without the acks that are owed for it, for example if its ack tokens are lost. It does not wait for
    /// the end of a connect on an iWARP device, so its call may block for 10 seconds. Otherwise as
    /// [`Destroy`](Request::Destroy). It also ends a destroy that waits for acks; that destroy then has no event. Later
    /// acks with the id's tokens are [refused](crate::AckError). If the device fails to destroy the id, its later
    /// events have no ack tokens.
    DestroyNow,
}

impl<'a> Request<'a> {
    /// Returns the column of the request table for this request.
    #[must_use]
    pub const fn request_kind(&self) -> RequestKind {
        match self {
            Request::Bind { .. } => RequestKind::Bind,
            Request::ResolveAddr { .. } => RequestKind::ResolveAddr,
            Request::ResolveRoute => RequestKind::ResolveRoute,
            Request::Listen { .. } => RequestKind::Listen,
            Request::AttachQp => RequestKind::AttachQp,
            Request::DetachQp => RequestKind::DetachQp,
            Request::Connect { .. } => RequestKind::Connect,
            Request::Accept { .. } => RequestKind::Accept,
            Request::Reject { .. } => RequestKind::Reject,
            Request::Establish => RequestKind::Establish,
            Request::Disconnect => RequestKind::Disconnect,
            Request::Teardown => RequestKind::Teardown,
            Request::Notify => RequestKind::Notify,
            Request::GetRequest => RequestKind::GetRequest,
            Request::Join { .. } => RequestKind::Join,
            Request::Leave { .. } => RequestKind::Leave,
            Request::SetOption { option } => option.request_kind(),
            Request::SetEce { .. } => RequestKind::SetEce,
            Request::Migrate { .. } => RequestKind::Migrate,
            Request::Destroy => RequestKind::Destroy,
            Request::DestroyNow => RequestKind::DestroyNow,
        }
    }

    /// Returns the private data to send; empty for most requests.
    #[must_use]
    pub const fn private_data(&self) -> &'a [u8] {
        if let Request::Connect { private_data, .. }
        | Request::Accept { private_data, .. }
        | Request::Reject { private_data, .. } = self
        {
            private_data
        } else {
            &[]
        }
    }
}
