//! What the application asks for.

use core::net::SocketAddr;

use crate::columns::columns;
use crate::event::ConnParam;
use crate::key::ChannelKey;

columns! {
    /// The kind of a request on an id: a column of the [request table](crate::table::REQUESTS).
    pub enum Verb {
        /// `rdma_bind_addr`.
        Bind = "bind_addr",
        /// `rdma_resolve_addr`.
        ResolveAddr = "resolve_addr",
        /// `rdma_resolve_route`.
        ResolveRoute = "resolve_route",
        /// `rdma_listen`.
        Listen = "listen",
        /// A QP is put on the id (`rdma_create_qp`).
        AttachQp = "attach_qp",
        /// The QP is taken off the id (`rdma_destroy_qp`).
        DetachQp = "detach_qp",
        /// `rdma_connect`.
        Connect = "connect",
        /// `rdma_accept`.
        Accept = "accept",
        /// `rdma_reject`.
        Reject = "reject",
        /// `rdma_establish`.
        Establish = "establish",
        /// `rdma_disconnect`.
        Disconnect = "disconnect",
        /// `rdma_migrate_id`.
        Migrate = "migrate_id",
        /// Handing the id to another core.
        Release = "release",
        /// `rdma_destroy_id`.
        Destroy = "destroy_id",
    }
}

columns! {
    /// Which services an id may use (`enum rdma_port_space`, rdma_create_id(3)).
    pub enum PortSpace {
        /// `RDMA_PS_TCP`: reliable, connected, messages.
        Tcp = "TCP",
        /// `RDMA_PS_IB`: any InfiniBand service; here its reliable connected one.
        Ib = "IB",
    }
}

impl PortSpace {
    /// librdmacm's number.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            PortSpace::Tcp => 0x0106,
            PortSpace::Ib => 0x013f,
        }
    }
}

/// Who says that an event has been dealt with (rdma_ack_cm_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acks {
    /// Each event carries a [`Receipt`](crate::Receipt); migrate and destroy wait for the receipts of their id.
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
    /// Take connection requests (rdma_listen(3)).
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
        /// At most 56 bytes.
        private_data: &'a [u8],
    },
    /// Accept a request (rdma_accept(3)).
    Accept {
        /// Parameters; the default lowers the peer's to what the device can.
        param: ConnParam,
        /// At most 196 bytes.
        private_data: &'a [u8],
    },
    /// Turn a request, or an answer that came, down (rdma_reject(3)).
    Reject {
        /// At most 148 bytes.
        private_data: &'a [u8],
    },
    /// Confirm a CONNECT_RESPONSE (rdma_establish(3)).
    Establish,
    /// End the connection, or answer its end (rdma_disconnect(3)).
    Disconnect,
    /// Report events on another channel from now on; `None` puts the id into synchronous mode (rdma_migrate_id(3)).
    Migrate {
        /// The new channel.
        to: Option<ChannelKey>,
    },
    /// Free the id (rdma_destroy_id(3)). Undelivered events of the id are discarded, as the kernel does.
    Destroy,
}

impl<'a> Request<'a> {
    /// The column of the request table that decides it.
    #[must_use]
    pub const fn verb(&self) -> Verb {
        match self {
            Request::Bind { .. } => Verb::Bind,
            Request::ResolveAddr { .. } => Verb::ResolveAddr,
            Request::ResolveRoute => Verb::ResolveRoute,
            Request::Listen { .. } => Verb::Listen,
            Request::AttachQp => Verb::AttachQp,
            Request::DetachQp => Verb::DetachQp,
            Request::Connect { .. } => Verb::Connect,
            Request::Accept { .. } => Verb::Accept,
            Request::Reject { .. } => Verb::Reject,
            Request::Establish => Verb::Establish,
            Request::Disconnect => Verb::Disconnect,
            Request::Migrate { .. } => Verb::Migrate,
            Request::Destroy => Verb::Destroy,
        }
    }

    /// The private data to send; empty for most requests.
    #[must_use]
    pub const fn private_data(&self) -> &'a [u8] {
        match self {
            Request::Connect { private_data, .. }
            | Request::Accept { private_data, .. }
            | Request::Reject { private_data } => private_data,
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Listen { .. }
            | Request::AttachQp
            | Request::DetachQp
            | Request::Establish
            | Request::Disconnect
            | Request::Migrate { .. }
            | Request::Destroy => &[],
        }
    }
}
