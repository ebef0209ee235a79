//! Queries on a core.

use super::Core;
use super::info::{ChannelInfo, IdInfo};
use crate::id::Facts;
use crate::key::{ChannelKey, IdKey};
use crate::state::State;

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
