//! Synchronous mode: the open request of an id, and the event that has ended the last one.

use super::Core;
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::event::Event;
use crate::id::{Id, SyncState};
use crate::key::IdKey;
use crate::request_kind::RequestKind;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// In synchronous mode: discards the result of the last request and sets the next state.
    pub(super) fn set_sync_state(&mut self, key: IdKey, next: SyncState) {
        let Some(id) = self.ids.get_mut(key).filter(|id| id.is_sync()) else { return };
        let (before, channel) = (core::mem::replace(&mut id.sync_state, next), id.channel);
        if let Some((_, stored)) = self.channels.get_mut(channel).and_then(|channel| channel.ended.take()) {
            self.data.discard(stored.data);
        }
        // The deadline does not end with a state of the listener, so it ends here.
        if before == SyncState::Open(RequestKind::GetRequest) {
            self.set_deadline(key, Time::NEVER);
        }
        self.activity += u64::from(matches!(next, SyncState::Over { .. }));
    }

    /// Ends the open request with an event.
    pub(super) fn end_sync(&mut self, key: IdKey, request: RequestKind, stored: Stored) {
        self.set_sync_state(key, SyncState::Idle);
        if let Some(channel) = self.channel(key).and_then(|key| self.channels.get_mut(key)) {
            channel.ended = Some((request, stored));
            self.activity += 1;
        }
    }

    /// Ends a disconnect that waits for no event, because the peer disconnected first or there is no connection any more.
    /// If the peer's DISCONNECTED is undelivered, it becomes the event of this request.
    pub(super) fn disconnected_at_once(&mut self, key: IdKey) {
        if !self.ids.get(key).is_some_and(Id::is_sync) {
            return;
        }
        match self.take_first(key, CmEvent::Disconnected) {
            Some(stored) => self.end_sync(key, RequestKind::Disconnect, stored),
            None => self.set_sync_state(key, SyncState::Over { timed_out: false }),
        }
    }

    /// Synchronous mode: returns the result of the last request on the id that waits for an event; `None` while it is
    /// open, or if there was none. The errno is the one that librdmacm would set (`ucma_complete`). In contrast to
    /// librdmacm, an event of another operation does not complete the request with success: DISCONNECTED during a
    /// connect is `ECONNRESET`, a device removal is `ENODEV`, and a join ends only by an event of its own group.
    #[must_use]
    pub fn sync_result(&self, id: IdKey) -> Option<Result<(), Errno>> {
        match self.ids.get(id)?.sync_state {
            SyncState::Open(_) => None,
            SyncState::Over { timed_out: false } => Some(Ok(())),
            SyncState::Over { timed_out: true } => Some(Err(Errno::ETIMEDOUT)),
            SyncState::Idle => self.ended(id).map(|(request, stored)| stored.bare(None).result_of(*request)),
        }
    }

    /// Synchronous mode: returns the event that completed the last request. It can be read until the id's next
    /// request (rdma_create_id(3)). `None` if the request ended without an event: at once, or at its deadline.
    #[must_use]
    pub fn sync_event(&self, id: IdKey) -> Option<Event> {
        self.ended(id).map(|(_, stored)| self.data.copy_of(stored))
    }

    /// Returns the last request, if a stored event has ended it.
    fn ended(&self, id: IdKey) -> Option<&(RequestKind, Stored)> {
        let id = self.ids.get(id).filter(|id| id.is_sync())?;
        self.channels.get(id.channel)?.ended.as_ref()
    }
}
