//! What the application asks for.

use core::net::SocketAddr;

use crate::columns::columns;
use crate::event::{ConnParam, Ece};
use crate::key::{ChannelKey, GroupKey};
use crate::request_kind::RequestKind;

columns! {
    /// Which services an id may use (`enum rdma_port_space`, rdma_create_id(3)).
    pub enum PortSpace {
        /// `RDMA_PS_TCP`: reliable, connected, messages.
        Tcp = "TCP",
        /// `RDMA_PS_IB`: any InfiniBand service; here its reliable connected one.
        Ib = "IB",
        /// `RDMA_PS_UDP`: unreliable datagrams and multicast.
        Udp = "UDP",
        /// `RDMA_PS_IPOIB`: as UDP, on InfiniBand devices only.
        Ipoib = "IPOIB",
    }
}

/// What kind of communication a port space is for: it decides what connect and accept mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A connection of two reliable QPs (REQ, REP, RTU).
    Connected,
    /// The address of a datagram QP is looked up (SIDR); there is no connection.
    Datagram,
}

impl PortSpace {
    /// librdmacm's number.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            PortSpace::Tcp => 0x0106,
            PortSpace::Ib => 0x013f,
            PortSpace::Udp => 0x0111,
            PortSpace::Ipoib => 0x0002,
        }
    }

    /// What connect and accept mean (`rdma_create_id` of librdmacm: the type of the id's QP).
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            PortSpace::Tcp | PortSpace::Ib => Service::Connected,
            PortSpace::Udp | PortSpace::Ipoib => Service::Datagram,
        }
    }
}

/// An option of an id (rdma_set_option(3), level `RDMA_OPTION_ID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmOption {
    /// The type of service of the packets; in any state.
    Tos(u8),
    /// Several ids may bind to the address, one may listen. On: unless it listens. Off: only while idle.
    ReuseAddr(bool),
    /// An IPv6 wildcard does not take IPv4; while idle or bound.
    AfOnly(bool),
    /// The time after which an unacknowledged packet is sent again: 4.096 µs times two to this power. Connected
    /// services only; in any state. On RoCE it changes the timers of the connection manager too.
    AckTimeout(u8),
}

impl CmOption {
    /// The column of the request table that decides it.
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

/// The reason that a rejection gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// 28: the application says no (rdma_reject(3)).
    Consumer,
    /// 35: it says no to the peer's enhanced connection establishment (`rdma_reject_ece`).
    Ece,
}

/// Who says that an event has been dealt with (rdma_ack_cm_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acks {
    /// Each event carries a [`AckToken`](crate::AckToken); migrate and destroy wait for the ack tokens of their id.
    Explicit,
    /// An event counts as acked when the application takes it.
    OnDelivery,
}

/// A request on an id that exists. Refused requests change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Bind to a local address; port 0 asks for a free one (rdma_bind_addr(3)).
    Bind {
        /// The local address.
        addr: SocketAddr,
    },
    /// Find the device and the link address for a destination (rdma_resolve_addr(3)).
    ResolveAddr {
        /// The local address, unless bound already.
        src: Option<SocketAddr>,
        /// The peer.
        dst: SocketAddr,
    },
    /// Find the path (rdma_resolve_route(3)).
    ResolveRoute,
    /// Take connection requests (rdma_listen(3)). Requests that the device reports before a listen fails stay to be taken: a
    /// later listen is refused while they are more than its backlog allows.
    Listen {
        /// Unread requests that the kernel holds; 0 or too many mean its maximum.
        backlog: i32,
    },
    /// Note that the application has put a QP on the id. No device call: the data path makes it.
    AttachQp,
    /// Note that the QP is off the id again.
    DetachQp,
    /// Ask the peer to connect (rdma_connect(3)).
    Connect {
        /// Parameters; the default is what NULL means to librdmacm.
        param: ConnParam,
        /// At most 56 bytes; 180 for datagrams.
        private_data: &'a [u8],
    },
    /// Accept a request (rdma_accept(3)). An id on its listener's channel is migrated to its home first (rdma_migrate_id(3)); if that
    /// fails the request is as before.
    Accept {
        /// Parameters; the default lowers the peer's to what the device can.
        param: ConnParam,
        /// At most 196 bytes; 136 for datagrams.
        private_data: &'a [u8],
    },
    /// Turn a request, or an answer that came, down (rdma_reject(3)).
    Reject {
        /// What the peer is told.
        reason: RejectReason,
        /// At most 148 bytes; 136 for datagrams.
        private_data: &'a [u8],
    },
    /// Confirm a CONNECT_RESPONSE (rdma_establish(3)).
    Establish,
    /// End the connection, or answer its end (rdma_disconnect(3)).
    Disconnect,
    /// End the connection, and go on until no packet of it can arrive any more: TIMEWAIT_EXIT, or the deadline. Then the
    /// memory that it used may be used again.
    Teardown,
    /// Say that a message has come on the QP although the peer's confirmation has not (rdma_notify(3) with
    /// `IBV_EVENT_COMM_EST`). Of the other events one breaks the connection and the rest are errors; they cannot be asked
    /// for.
    Notify,
    /// Wait for the next request (rdma_get_request(3)); for a listener in synchronous mode. The new id is the application's
    /// from the moment that this ends, as if its event had been taken off a channel: it outlives the listener, also if
    /// nobody has looked.
    /// When the listener leaves that mode the wait is over, and nothing is told of it: requests come as events then.
    GetRequest,
    /// Join a multicast group (rdma_join_multicast_ex(3)); MULTICAST_JOIN or MULTICAST_ERROR follows.
    Join {
        /// The group's address. One membership per address.
        addr: SocketAddr,
        /// Only to send to it: the QP is not attached.
        send_only: bool,
    },
    /// Leave a multicast group (rdma_leave_multicast(3)). Undelivered events of it are discarded, and a join that is still
    /// open ends. It waits for the acks of the group's events, without a deadline, and then ends by event.
    Leave {
        /// Which.
        group: GroupKey,
    },
    /// Set an option (rdma_set_option(3)).
    SetOption {
        /// Which, and to what.
        option: CmOption,
    },
    /// Set what the next connect or accept tells of enhanced connection establishment (rdma_set_local_ece(3)).
    SetEce {
        /// What to tell.
        ece: Ece,
    },
    /// Report events on another channel from now on; `None` puts the id into synchronous mode (rdma_migrate_id(3)). It waits
    /// for the acks of the id's events; if it has to, the end of the one before must have been taken. A
    /// listener moves without the device.
    Migrate {
        /// The new channel.
        to: Option<ChannelKey>,
    },
    /// Free the id (rdma_destroy_id(3)). Undelivered events of the id are discarded, as the kernel does. It waits for the acks
    /// of the id's events.
    Destroy,
    /// Free the id without the acks that are owed for it: for an id whose ack tokens are lost. As [`Destroy`](Request::Destroy)
    /// otherwise, which it also takes over: one that waits for acks ends by it, without an event of its own. Ack tokens of the id
    /// that come later are [refused](crate::AckError). Should the device fail to destroy it, its events have no ack tokens from then
    /// on.
    DestroyNow,
}

impl<'a> Request<'a> {
    /// The column of the request table that decides it.
    #[must_use]
    #[inline(always)]
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

    /// The private data to send; empty for most requests.
    #[must_use]
    #[inline(always)]
    pub const fn private_data(&self) -> &'a [u8] {
        match self {
            Request::Connect { private_data, .. }
            | Request::Accept { private_data, .. }
            | Request::Reject { private_data, .. } => private_data,
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Listen { .. }
            | Request::AttachQp
            | Request::DetachQp
            | Request::Establish
            | Request::Disconnect
            | Request::Teardown
            | Request::Notify
            | Request::GetRequest
            | Request::Join { .. }
            | Request::Leave { .. }
            | Request::SetOption { .. }
            | Request::SetEce { .. }
            | Request::Migrate { .. }
            | Request::Destroy
            | Request::DestroyNow => &[],
        }
    }
}
