//! Release of an id from one core, and its adoption by another one, which may be on another thread.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Core;
use crate::channel::{Channel, Phase};
use crate::cm_event::CmEvent;
use crate::deadlines::Armed;
use crate::error::Refused;
use crate::id::{Id, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::private_data_slab::StoredPrivateData;
use crate::refuse_reason::RefuseReason;
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::slab_index::EventRef;
use crate::state::State;
use crate::stored::Stored;
use crate::table;
use crate::time::Time;

/// An id between two cores, with its undelivered events. It must be [adopted](Core::adopt), together with the handle of
/// [`Device::release`](crate::Device::release).
#[derive(Debug)]
#[must_use = "the device still has the id"]
pub struct Released(Box<Parts>);

#[derive(Debug)]
struct Parts {
    id: Id,
    pending: Vec<(Stored, Option<StoredPrivateData>)>,
    /// The event that completed the last synchronous request, if there is one.
    ended: Option<(RequestKind, Stored, Option<StoredPrivateData>)>,
}

impl Released {
    /// Returns the state of the id.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.id.state
    }
}

impl Core {
    /// Removes an id in synchronous mode from this core, with its undelivered events. Its key is stale afterwards. Also
    /// returns the key of the private channel, for [`Device::release`](crate::Device::release).
    ///
    /// An open request stays open in the next core, with its deadline: both cores must count time from the same epoch.
    ///
    /// # Errors
    /// [`Refused`] if the id is not in synchronous mode; if it shares its channel (a listener and the [ids of its
    /// requests](Core::ids_awaiting_migrate), which can be migrated); if a call is under way; if it is a member of
    /// multicast groups; if acks are owed; or if requests for it are untaken.
    pub fn release(&mut self, key: IdKey) -> Result<(Released, ChannelKey), Refused> {
        let id = self.would_release(key)?;
        let (channel, sync_state) = (id.channel, id.sync_state);
        let mut pending = Vec::new();
        while let Some(event_ref) = self.ids.get(key).and_then(|id| id.pending.head()) {
            self.detach(event_ref, channel);
            pending.push(self.take_whole(event_ref));
        }
        let ended = match sync_state {
            SyncState::Ended(request_kind, event_ref) => {
                let (stored, private_data_of) = self.take_whole(event_ref);
                // A connection request names an id that stays in this core, so another core cannot use the event.
                (request_kind != RequestKind::GetRequest || stored.listener().is_none()).then_some((
                    request_kind,
                    stored,
                    private_data_of,
                ))
            }
            SyncState::Never | SyncState::For(_) | SyncState::Posted(..) | SyncState::Without { .. } => None,
        };
        let sync_state = if matches!(sync_state, SyncState::Ended(..)) { SyncState::Never } else { sync_state };
        // The id keeps its deadline; only the entry in this core's heap is removed.
        let deadline = self.ids.get(key).map_or(Time::NEVER, |id| id.deadline);
        self.set_deadline(key, Time::NEVER);
        self.remove_channel(channel);
        match self.ids.remove(key).cloned() {
            Some(id) => {
                Ok((Released(Box::new(Parts { id: Id { deadline, sync_state, ..id }, pending, ended })), channel))
            }
            None => Err(Refused::NoSuchId { id: key, request: RequestKind::Release }),
        }
    }

    /// Returns the id if it can be released.
    pub(crate) fn would_release(&self, key: IdKey) -> Result<&Id, Refused> {
        let id = self.get(key, RequestKind::Release)?;
        let cell = table::request_rule(id.state, RequestKind::Release, id.port_space.service());
        let reason = cell.err().or(id.busy()).or_else(|| self.held_here(id));
        reason.map_or(Ok(id), |reason| Err(self.refusal(key, RequestKind::Release, reason)))
    }

    /// Adopts an id that another core released. The id keeps its state, and is in synchronous mode on a new private
    /// channel. Pass the two returned keys to [`Device::adopt`](crate::Device::adopt) before any request on the id.
    ///
    /// The deadline of an open request is not converted: this core must count [`Time`] from the same epoch as the
    /// core that released the id.
    ///
    /// # Errors
    /// [`Refused::Full`] and the id, at the limit on ids or channels.
    pub fn adopt(&mut self, released: Released) -> Result<(IdKey, ChannelKey), (Refused, Released)> {
        if !self.has_room() {
            return Err((Refused::Full("ids"), released));
        }
        let listens = released.state() == State::Listening;
        let channel = Channel { phase: Phase::Open, ids: 1, ..Channel::new(Acks::OnDelivery, true) };
        let Some(channel) = self.channels.insert(channel) else { return Err((Refused::Full("channels"), released)) };
        let Parts { id, pending, ended } = *released.0;
        let (deadline, sync_state) = (id.deadline, id.sync_state);
        let fresh = Id {
            channel,
            device_channel: channel,
            deadline: Time::NEVER,
            armed: Armed::NOT,
            sync_state: SyncState::Never,
            ..id
        };
        let Some(key) = self.ids.insert(fresh) else {
            let released = Released(Box::new(Parts { id, pending, ended }));
            return Err((Refused::Full("ids"), released));
        };
        if let Some(channel) = self.channels.get_mut(channel).filter(|_| listens) {
            channel.listener = Some(key);
        }
        self.set_deadline(key, deadline);
        for (stored, private_data_of) in pending {
            let stored = self.rekeyed(stored, private_data_of.as_ref(), key);
            self.post(stored, channel);
        }
        let sync_state = match ended {
            Some((request_kind, stored, private_data_of)) => {
                let stored = self.rekeyed(stored, private_data_of.as_ref(), key);
                SyncState::Ended(request_kind, self.pending.store(stored))
            }
            None => sync_state,
        };
        self.clear_waiting(key, sync_state);
        self.handle_readable(channel);
        Ok((key, channel))
    }

    /// Returns the reason why an id cannot be released, if there is one.
    fn held_here(&self, id: &Id) -> Option<RefuseReason> {
        if !id.sync {
            Some(RefuseReason::NotSync)
        } else if self.channels.get(id.channel).is_some_and(|channel| channel.ids != 1) {
            Some(RefuseReason::SharesChannel)
        } else if id.groups.is_some() {
            Some(RefuseReason::HasGroups)
        } else if id.owed > 0 {
            Some(RefuseReason::OwesAcks)
        } else {
            // Undelivered requests belong to ids that stay in this core.
            self.first_of(id, CmEvent::ConnectRequest).map(|_| RefuseReason::Busy(RequestKind::Listen))
        }
    }

    fn take_whole(&mut self, event_ref: EventRef) -> (Stored, Option<StoredPrivateData>) {
        let stored = self.pending.take(event_ref);
        let private_data_of = self.pending.private_data_of(stored.private_data_ref).cloned();
        self.pending.discard(stored.private_data_ref);
        (stored, private_data_of)
    }

    fn rekeyed(&mut self, stored: Stored, private_data_of: Option<&StoredPrivateData>, key: IdKey) -> Stored {
        let private_data_ref = private_data_of.and_then(|it| self.pending.keep(&it.private_data, it.datagram));
        stored.rekeyed(key, private_data_ref)
    }
}
