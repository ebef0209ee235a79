//! What a core tells of itself: in numbers, of an id, of a channel.

use super::Core;
use crate::id::Facts;
use crate::key::{ChannelKey, IdKey};
use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
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

impl Core {
    /// Returns all ids, including those of undelivered requests, for example to destroy them at the end of a program.
    pub fn ids(&self) -> impl Iterator<Item = IdKey> + '_ {
        self.ids.iter().map(|(key, _)| key)
    }

    /// Returns all channels, including private ones.
    pub fn channels(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.channels.iter().map(|(key, _)| key)
    }

    /// Returns more facts of an id; `None` once it is gone.
    #[must_use]
    pub fn id_info(&self, id: IdKey) -> Option<IdInfo> {
        self.ids.get(id).map(|id| IdInfo {
            port_space: id.port_space,
            transport: id.transport(),
            has_qp: id.facts.contains(Facts::HAS_QP),
            owed: id.owed,
            is_sync: id.is_sync(),
            sync_open: id.waits_for(),
        })
    }

    /// Returns the facts of a channel; `None` if there is none.
    #[must_use]
    pub fn channel_info(&self, channel: ChannelKey) -> Option<ChannelInfo> {
        self.channels.get(channel).map(|channel| ChannelInfo {
            is_private: channel.private,
            is_paused: channel.paused,
            has_failed: channel.has_failed(),
        })
    }

    /// Returns the state of an id; `None` once it is gone.
    #[must_use]
    pub fn state(&self, id: IdKey) -> Option<State> {
        self.ids.get(id).map(|id| id.state)
    }

    /// Returns the channel that delivers an id's events; for an id in synchronous mode, its private channel.
    #[must_use]
    pub fn channel(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.channel)
    }

    /// Returns the channel that the device reports an id's events on. It differs from [`channel`](Core::channel) for
    /// ids that listen or have tried to: they have a channel of their own. It also differs for the id of a request,
    /// which is on its listener's channel until it is accepted or migrated.
    #[must_use]
    pub fn device_channel(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.device_channel)
    }

    /// Whether an event on one of the application's channels can be taken without a read. Those of paused channels do not
    /// count.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.deliverable > 0
    }

    /// Whether a call, a channel to read, or a child waits for the driver.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let is_marked = !(self.readable.is_empty() && self.private_readable.is_empty());
        is_marked || !(self.due.is_empty() && self.children.is_empty())
    }

    /// Returns the number of slots for channels.
    pub(crate) fn channel_slots(&self) -> usize {
        self.channels.slots()
    }

    /// Returns the channel in a slot; `None` if the slot is vacant.
    pub(crate) fn channel_at(&self, slot: usize) -> Option<ChannelKey> {
        self.channels.key_at(slot)
    }

    /// Counts completed synchronous requests, events of ids in synchronous mode, and failed reads. After a change a driver
    /// runs the application before it blocks.
    #[must_use]
    pub fn activity(&self) -> u64 {
        self.activity
    }
}
