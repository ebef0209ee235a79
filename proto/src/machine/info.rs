//! What a core tells of itself: in numbers, of an id, of a channel.

use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::transport::Transport;

pub use super::summary::{Summary, WaitsFor};

/// What a core knows of an id besides its state and its channels ([`Core::id_info`](crate::Core::id_info)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdInfo {
    /// Its port space.
    pub port_space: PortSpace,
    /// The transport of its device. InfiniBand until [`Core::note_iwarp`](crate::Core::note_iwarp).
    pub transport: Transport,
    /// Whether it has a QP, as reported by [`Request::AttachQp`](crate::Request::AttachQp) and
    /// [`Request::DetachQp`](crate::Request::DetachQp).
    pub has_qp: bool,
    /// The number of its events that are delivered and not acked yet. An id with lost ack tokens is never migrated or
    /// destroyed, except by [`Request::DestroyNow`](crate::Request::DestroyNow).
    pub owed: u32,
    /// Whether it is in synchronous mode.
    pub is_sync: bool,
    /// Synchronous mode: the open request that waits for its event.
    pub sync_open: Option<RequestKind>,
}

/// What a core knows of a channel ([`Core::channel_info`](crate::Core::channel_info)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// Whether it is private to an id in synchronous mode or to a listener.
    pub is_private: bool,
    /// Whether it is [paused](crate::Core::pause_channel).
    pub is_paused: bool,
    /// Whether it has failed, see [`Core::handle_unreadable`](crate::Core::handle_unreadable).
    pub has_failed: bool,
}

/// Counters of events and outcomes that had no effect. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events of operations that had ended.
    pub late: u64,
    /// Events of ids that do not belong to this core.
    pub stray: u64,
    /// Impossible events, and objects that the device failed to close or destroy.
    pub faults: u64,
    /// Undelivered events that were discarded with a destroyed id.
    pub discarded: u64,
}
