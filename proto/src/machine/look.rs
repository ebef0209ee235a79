//! What a core tells of itself.

use super::{Core, Counters};
use crate::errno::Errno;
use crate::event::Event;
use crate::id::SyncState;
use crate::key::{ChannelKey, IdKey};
use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;

impl Core {
    /// The number that this core's keys carry.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.limits.core.unwrap_or(0)
    }

    /// The state of an id; `None` once it is gone.
    #[must_use]
    pub fn state(&self, id: IdKey) -> Option<State> {
        self.ids.get(id).map(|id| id.state)
    }

    /// The port space of an id.
    #[must_use]
    pub fn port_space(&self, id: IdKey) -> Option<PortSpace> {
        self.ids.get(id).map(|id| id.port_space)
    }

    /// The channel that an id's events are delivered on; for one in synchronous mode, its private one.
    #[must_use]
    pub fn channel(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.channel)
    }

    /// The channel that the device reports an id's events on. It is [`channel`](Core::channel) but for ids that listen, or have
    /// tried to: these have one of their own. The id of a request is on that of its listener until it is accepted or migrated.
    #[must_use]
    pub fn device_channel(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.device_channel)
    }

    /// Whether a request on an id waits for the application's acks, and will end by event: a migration, a destruction or
    /// a leave (any of them, where several wait).
    #[must_use]
    pub fn waits_for_acks(&self, id: IdKey, request: RequestKind) -> bool {
        self.ids.get(id).is_some_and(|it| {
            (request == RequestKind::Migrate && it.pending_migrate.is_some())
                || (request == RequestKind::Destroy && it.state == State::Destroying)
                || (request == RequestKind::Leave && self.memberships(id).any(|(_, group)| group.leaving))
        })
    }

    /// Whether an id is in synchronous mode.
    #[must_use]
    pub fn is_sync(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(|id| id.sync)
    }

    /// Whether an id has a QP, as far as [`Request::AttachQp`](crate::Request::AttachQp) told.
    #[must_use]
    pub fn has_qp(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(|id| id.has_qp)
    }

    /// Whether a channel belongs to an id: one in synchronous mode, or a listener.
    #[must_use]
    pub fn is_private(&self, channel: ChannelKey) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.private)
    }

    /// Events delivered for an id and not acked yet.
    #[must_use]
    pub fn owed(&self, id: IdKey) -> u32 {
        self.ids.get(id).map_or(0, |id| id.owed)
    }

    /// The ids for which acks are owed, and how many. One whose ack tokens are lost is never moved or destroyed, but by
    /// [`Request::DestroyNow`](crate::Request::DestroyNow). It looks through all ids.
    pub fn ids_with_owed_acks(&self) -> impl Iterator<Item = (IdKey, u32)> + '_ {
        self.ids.iter().filter(|(_, id)| id.owed > 0).map(|(key, id)| (key, id.owed))
    }

    /// Whether a channel is there.
    #[must_use]
    pub fn has_channel(&self, channel: ChannelKey) -> bool {
        self.channels.contains(channel)
    }

    /// Whether a call, a channel to be read, or a child is waiting for the driver.
    #[must_use]
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        !self.calls.is_empty()
            || !self.readable.is_empty()
            || !self.children.is_empty()
            || (!self.parked.is_empty() && self.has_room_for_parked())
    }

    #[inline(never)]
    fn has_room_for_parked(&self) -> bool {
        self.parked.iter().any(|&key| self.wants_event(key).is_some())
    }

    /// Every id there is, requests that the application has not heard of included: for a program that ends.
    pub fn id_keys(&self) -> impl Iterator<Item = IdKey> + '_ {
        self.ids.iter().map(|(key, _)| key)
    }

    /// Every channel there is, private ones included.
    pub fn channel_keys(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.channels.iter().map(|(key, _)| key)
    }

    /// How many ids there are.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    /// How many memberships in multicast groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// How many channels there are, private ones included.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// How often the application was given something to look at: an event to take, or the end of a synchronous request.
    /// A driver that sees it change does not go to sleep before the application has had a look.
    #[must_use]
    pub fn activity(&self) -> u64 {
        self.activity
    }

    /// What led to nothing.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Synchronous mode: how the last request on the id that waits for an event ended; `None` while it is open or if
    /// there was none. The errno is the one that librdmacm would have set (`ucma_complete`), but a request ends only by
    /// an event of its own: DISCONNECTED during a connect is `ECONNRESET`, a device removal `ENODEV`, and a join ends by
    /// what is told of its own group.
    #[must_use]
    pub fn sync_result(&self, id: IdKey) -> Option<Result<(), Errno>> {
        match self.ids.get(id)?.sync_state {
            SyncState::Never | SyncState::For(_) => None,
            SyncState::Without { timed_out: false } => Some(Ok(())),
            SyncState::Without { timed_out: true } => Some(Err(Errno::ETIMEDOUT)),
            SyncState::Ended(request_kind, event_ref) | SyncState::Posted(request_kind, event_ref) => {
                Some(self.to_event(self.pending.get(event_ref)).result_of(request_kind))
            }
        }
    }

    /// Synchronous mode: the request on an id that waits for its event.
    #[must_use]
    pub fn sync_open(&self, id: IdKey) -> Option<RequestKind> {
        match self.ids.get(id)?.sync_state {
            SyncState::For(request_kind) => Some(request_kind),
            SyncState::Never | SyncState::Ended(..) | SyncState::Posted(..) | SyncState::Without { .. } => None,
        }
    }

    /// Synchronous mode: the event that completed the last request, readable until the id's next request
    /// (rdma_create_id(3)). `None` if it ended without one: at once, or at its deadline.
    #[must_use]
    pub fn sync_event(&self, id: IdKey) -> Option<Event> {
        match self.ids.get(id)?.sync_state {
            SyncState::Ended(_, event_ref) | SyncState::Posted(_, event_ref) => {
                Some(self.to_event(self.pending.get(event_ref)))
            }
            SyncState::Never | SyncState::For(_) | SyncState::Without { .. } => None,
        }
    }
}
