//! Queries on a core.

use super::{Core, Counters};
use crate::id::Rare;
use crate::key::{ChannelKey, IdKey};
use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::transport::Transport;

impl Core {
    /// Returns the number of this core, which its keys contain.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.limits.core.unwrap_or(0)
    }

    /// Returns the state of an id; `None` once it is gone.
    #[must_use]
    pub fn state(&self, id: IdKey) -> Option<State> {
        self.ids.get(id).map(|id| id.state)
    }

    /// Returns the transport of an id's device. InfiniBand until [`Core::note_iwarp`].
    #[must_use]
    pub fn transport(&self, id: IdKey) -> Option<Transport> {
        self.ids.get(id).map(|id| id.transport())
    }

    /// Returns the port space of an id.
    #[must_use]
    pub fn port_space(&self, id: IdKey) -> Option<PortSpace> {
        self.ids.get(id).map(|id| id.port_space)
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

    /// Whether a request on an id waits for the application's acks and will end by event: a migration, a destruction or
    /// a leave. A destruction on an iWARP device may wait for the answer to a connect instead. For a leave: whether any
    /// leave of the id waits.
    #[must_use]
    pub fn waits_for_acks(&self, id: IdKey, request: RequestKind) -> bool {
        self.ids.get(id).is_some_and(|it| {
            (request == RequestKind::Migrate && it.rare.contains(Rare::MOVES))
                || (request == RequestKind::Destroy && it.state == State::Destroying)
                || (request == RequestKind::Leave && self.memberships(id).any(|(_, group)| group.leaving))
        })
    }

    /// Whether an id has a QP, as reported by [`Request::AttachQp`](crate::Request::AttachQp) and
    /// [`Request::DetachQp`](crate::Request::DetachQp).
    #[must_use]
    pub fn has_qp(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(|id| id.has_qp)
    }

    /// Whether a channel is private to an id in synchronous mode or to a listener.
    #[must_use]
    pub fn is_private(&self, channel: ChannelKey) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.private)
    }

    /// Whether an event on one of the application's channels can be taken without a read. Those of paused channels do not
    /// count.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.deliverable > 0
    }

    /// Returns the number of events that are delivered for an id and not acked yet.
    #[must_use]
    pub fn owed(&self, id: IdKey) -> u32 {
        self.ids.get(id).map_or(0, |id| id.owed)
    }

    /// Returns the ids that acks are owed for, with the number of acks. An id with lost ack tokens is never migrated
    /// or destroyed, except by [`Request::DestroyNow`](crate::Request::DestroyNow). O(ids).
    pub fn ids_with_owed_acks(&self) -> impl Iterator<Item = (IdKey, u32)> + '_ {
        self.ids.iter().filter(|(_, id)| id.owed > 0).map(|(key, id)| (key, id.owed))
    }

    /// Whether a channel exists.
    #[must_use]
    pub fn has_channel(&self, channel: ChannelKey) -> bool {
        self.channels.contains(channel)
    }

    /// Whether a call, a channel to read, or a child waits for the driver.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let is_marked = !(self.readable.is_empty() && self.private_readable.is_empty());
        is_marked || !(self.due.is_empty() && self.children.is_empty())
    }

    /// Returns all ids, including those of undelivered requests, for example to destroy them at the end of a program.
    pub fn id_keys(&self) -> impl Iterator<Item = IdKey> + '_ {
        self.ids.iter().map(|(key, _)| key)
    }

    /// Returns all channels, including private ones.
    pub fn channel_keys(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.channels.iter().map(|(key, _)| key)
    }

    /// Returns the number of slots for channels.
    pub(crate) fn channel_slots(&self) -> usize {
        self.channels.slots()
    }

    /// Returns the channel in a slot; `None` if the slot is vacant.
    pub(crate) fn channel_at(&self, slot: usize) -> Option<ChannelKey> {
        self.channels.key_at(slot)
    }

    /// Returns the number of ids.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of memberships in multicast groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of channels, including private ones.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Counts completed synchronous requests, events of ids in synchronous mode, and failed reads. After a change a driver
    /// runs the application before it blocks.
    #[must_use]
    pub fn activity(&self) -> u64 {
        self.activity
    }

    /// Returns the counters of events and outcomes without effect.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
