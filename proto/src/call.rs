//! The calls that the core makes to a device.

use core::fmt;
use core::net::SocketAddr;

use crate::errno::Errno;
use crate::event::{ConnParam, Ece};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::request::{CmOption, PortSpace, RejectReason};

/// One device call. A call blocks only on locks, with two exceptions on iWARP devices. A connect blocks until its TCP
/// connection is established or has failed, at most for about two minutes. A destroy blocks while a connect of the id
/// awaits its answer, at most for 10 seconds; the core makes such a call only for
/// [`Request::DestroyNow`](crate::Request::DestroyNow), and after DEVICE_REMOVAL, behind which no answer comes.
// The tag has a place of its own, not one in an address.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Open a non-blocking event channel (`rdma_create_event_channel`).
    OpenChannel {
        /// The key of the new channel.
        channel: ChannelKey,
    },
    /// Close a channel (`rdma_destroy_event_channel`). No id is on it.
    CloseChannel {
        /// The channel.
        channel: ChannelKey,
    },
    /// `rdma_create_id`, on a channel that is never NULL.
    CreateId {
        /// The key of the new id.
        id: IdKey,
        /// The channel of its events.
        channel: ChannelKey,
        /// Its port space.
        port_space: PortSpace,
    },
    /// `rdma_bind_addr`.
    Bind {
        /// The id.
        id: IdKey,
        /// The local address.
        addr: SocketAddr,
    },
    /// `rdma_resolve_addr`.
    ResolveAddr {
        /// The id.
        id: IdKey,
        /// The local address; `None` if the id is bound, or to let the kernel select one.
        src: Option<SocketAddr>,
        /// The peer.
        dst: SocketAddr,
        /// The kernel's own deadline, in milliseconds, at least 1.
        timeout_ms: i32,
    },
    /// `rdma_resolve_route`.
    ResolveRoute {
        /// The id.
        id: IdKey,
        /// The kernel's own deadline, in milliseconds, at least 1.
        timeout_ms: i32,
    },
    /// `rdma_listen`.
    Listen {
        /// The id.
        id: IdKey,
        /// The maximum number of unread requests in the kernel.
        backlog: i32,
    },
    /// `rdma_connect`, with the private data that goes with the call.
    Connect {
        /// The id.
        id: IdKey,
        /// The connection parameters.
        param: ConnParam,
    },
    /// `rdma_accept`, with the private data that goes with the call.
    Accept {
        /// The id.
        id: IdKey,
        /// The connection parameters.
        param: ConnParam,
    },
    /// `rdma_reject` or `rdma_reject_ece`, with the private data that goes with the call.
    Reject {
        /// The id.
        id: IdKey,
        /// The reason: 28 (`rdma_reject`) or 35 (`rdma_reject_ece`).
        reason: RejectReason,
    },
    /// `rdma_establish`.
    Establish {
        /// The id.
        id: IdKey,
    },
    /// `rdma_disconnect`.
    Disconnect {
        /// The id.
        id: IdKey,
    },
    /// `rdma_notify` with `IBV_EVENT_COMM_EST`.
    Notify {
        /// The id.
        id: IdKey,
    },
    /// `rdma_join_multicast_ex`. MULTICAST_JOIN and MULTICAST_ERROR are reported with the key.
    Join {
        /// The id.
        id: IdKey,
        /// The key of the new membership.
        group: GroupKey,
        /// The address of the group.
        addr: SocketAddr,
        /// Whether the membership only sends to the group.
        send_only: bool,
    },
    /// `rdma_leave_multicast`. Discards unread events of the membership.
    Leave {
        /// The id.
        id: IdKey,
        /// The membership.
        group: GroupKey,
        /// The address of the group, by which librdmacm finds the membership.
        addr: SocketAddr,
    },
    /// `rdma_set_option`, level `RDMA_OPTION_ID`.
    SetOption {
        /// The id.
        id: IdKey,
        /// The option and its value.
        option: CmOption,
    },
    /// `rdma_set_local_ece`.
    SetEce {
        /// The id.
        id: IdKey,
        /// The options to send.
        ece: Ece,
    },
    /// `rdma_migrate_id`. The driver reads `to` afterwards, because the kernel moves events to it without waking its
    /// poller (`ucma_migrate_id`). The id of a request that is not accepted has no such events.
    Migrate {
        /// The id.
        id: IdKey,
        /// The channel that it is on.
        from: ChannelKey,
        /// The channel that it moves to.
        to: ChannelKey,
    },
    /// `rdma_destroy_id`.
    Destroy {
        /// The id.
        id: IdKey,
    },
}

impl Call {
    /// Returns the id of the call; `None` for calls on a channel.
    #[must_use]
    pub const fn id(&self) -> Option<IdKey> {
        match *self {
            Call::OpenChannel { .. } | Call::CloseChannel { .. } => None,
            Call::CreateId { id, .. }
            | Call::Bind { id, .. }
            | Call::ResolveAddr { id, .. }
            | Call::ResolveRoute { id, .. }
            | Call::Listen { id, .. }
            | Call::Connect { id, .. }
            | Call::Accept { id, .. }
            | Call::Reject { id, .. }
            | Call::Establish { id }
            | Call::Disconnect { id }
            | Call::Notify { id }
            | Call::Join { id, .. }
            | Call::Leave { id, .. }
            | Call::SetOption { id, .. }
            | Call::SetEce { id, .. }
            | Call::Migrate { id, .. }
            | Call::Destroy { id } => Some(id),
        }
    }

    /// Returns the name of its librdmacm function, without the prefix `rdma_`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Call::OpenChannel { .. } => "create_event_channel",
            Call::CloseChannel { .. } => "destroy_event_channel",
            Call::CreateId { .. } => "create_id",
            Call::Bind { .. } => "bind_addr",
            Call::ResolveAddr { .. } => "resolve_addr",
            Call::ResolveRoute { .. } => "resolve_route",
            Call::Listen { .. } => "listen",
            Call::Connect { .. } => "connect",
            Call::Accept { .. } => "accept",
            Call::Reject { .. } => "reject",
            Call::Establish { .. } => "establish",
            Call::Disconnect { .. } => "disconnect",
            Call::Notify { .. } => "notify",
            Call::Join { .. } => "join_multicast",
            Call::Leave { .. } => "leave_multicast",
            Call::SetOption { .. } => "set_option",
            Call::SetEce { .. } => "set_local_ece",
            Call::Migrate { .. } => "migrate_id",
            Call::Destroy { .. } => "destroy_id",
        }
    }
}

/// The function, the id or channel, and addresses: `bind_addr on id0: 10.0.0.1:7471`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Some(id) = self.id() {
            write!(f, " on {id}")?;
        }
        if let Call::OpenChannel { channel } | Call::CloseChannel { channel } = self {
            write!(f, " {channel}")
        } else if let Call::Bind { addr, .. }
        | Call::ResolveAddr { dst: addr, .. }
        | Call::Join { addr, .. }
        | Call::Leave { addr, .. } = self
        {
            write!(f, ": {addr}")
        } else if let Call::Migrate { from, to, .. } = self {
            write!(f, ": from {from} to {to}")
        } else {
            Ok(())
        }
    }
}

/// The result of a call: success, or its errno.
pub type Outcome = Result<(), Errno>;
