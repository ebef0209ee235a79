//! Release of an id from one core, and its adoption by another one, which may be on another thread.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Core;
use crate::channel::Channel;
use crate::deadlines::Armed;
use crate::error::Refused;
use crate::error_with::ErrorWith;
use crate::id::{Id, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::refuse_reason::RefuseReason;
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::{Data, Stored};
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
    events: Vec<(Stored, Option<Data>)>,
    /// The last synchronous request and the event that ended it, if there is one.
    ended: Option<(RequestKind, Stored, Option<Data>)>,
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
    /// [`Refused`] if the id is not in synchronous mode; if it shares its channel (a listener and the ids of its requests
    /// that are neither accepted nor migrated); if a call is due; if it is a member of multicast
    /// groups; if acks are owed; or if requests for it are untaken.
    pub fn release(&mut self, key: IdKey) -> Result<(Released, ChannelKey), Refused> {
        let id = self.would_release(key)?.clone();
        let channel = id.channel;
        // The id keeps its deadline; only the entry in this core's heap is removed.
        self.set_deadline(key, Time::NEVER);
        let (mut events, mut ended) = (VecDeque::new(), None);
        if let Some(channel) = self.channels.get_mut(channel) {
            (events, ended) = (core::mem::take(&mut channel.events), channel.ended.take());
        }
        self.undelivered -= events.iter().map(|stored| u32::from(stored.of_device())).sum::<u32>();
        let events = events.into_iter().map(|stored| (stored, self.data.take(stored.data))).collect();
        let ended = ended.map(|(request, stored)| (request, stored, self.data.take(stored.data)));
        // A connection request names an id that stays in this core, so another core cannot use the event.
        let ended = ended.filter(|(_, stored, _)| !stored.is_request());
        self.remove_channel(channel);
        self.ids.remove(key);
        self.unpark();
        Ok((Released(Box::new(Parts { id, events, ended })), channel))
    }

    /// Returns the id if it can be released.
    pub(crate) fn would_release(&self, key: IdKey) -> Result<&Id, Refused> {
        let refuse = |reason| self.refusal(key, RequestKind::Release, reason);
        // The refusal then says that there is no such id.
        let id = self.ids.get(key).ok_or_else(|| refuse(RefuseReason::WrongState))?;
        let cell = table::request_rule(id.state, RequestKind::Release, id.port_space.service());
        let reason = cell.err().or(id.busy()).or_else(|| self.held_here(id));
        reason.map_or(Ok(id), |reason| Err(refuse(reason)))
    }

    /// Adopts an id that another core released. The id keeps its state, and is in synchronous mode on a new private
    /// channel. Pass the two returned keys to [`Device::adopt`](crate::Device::adopt) before any request on the id.
    ///
    /// The deadline of an open request is not converted: this core must count [`Time`] from the same epoch as the
    /// core that released the id.
    ///
    /// # Errors
    /// [`Refused::Full`] and the id, at the limit on ids or channels.
    pub fn adopt(&mut self, released: Released) -> Result<(IdKey, ChannelKey), ErrorWith<Released, Refused>> {
        if !self.has_room() {
            return Err(ErrorWith::new(released, Refused::Full("ids")));
        }
        let Some(channel) = self.channels.insert(Channel { ids: 1, ..Channel::new(Acks::OnDelivery, true) }) else {
            return Err(ErrorWith::new(released, Refused::Full("channels")));
        };
        let Parts { id, events, ended } = *released.0;
        let (deadline, listens) = (id.deadline, id.state == State::Listening);
        let fresh =
            Id { channel, device_channel: channel, undelivered: 0, deadline: Time::NEVER, armed: Armed::NOT, ..id };
        // There is room, so that there is a key.
        let key = self.ids.insert(fresh);
        let Some(key) = key else {
            let given = Released(Box::new(Parts { id, events, ended }));
            return Err(ErrorWith::new(given, Refused::Full("ids")));
        };
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.listener = listens.then_some(key);
            if let Some((request, stored, data)) = ended {
                let data = data.and_then(|data| self.data.adopt(&data));
                channel.ended = Some((request, stored.rekeyed(key, data)));
            }
            let has_ended = channel.ended.is_some() || matches!(id.sync_state, SyncState::Over { .. });
            self.activity += u64::from(has_ended);
        }
        for (stored, data) in events {
            let data = data.and_then(|data| self.data.adopt(&data));
            self.post(channel, stored.rekeyed(key, data));
        }
        self.set_deadline(key, deadline);
        self.handle_readable(channel);
        Ok((key, channel))
    }

    /// Returns the reason why an id cannot be released, if there is one.
    fn held_here(&self, id: &Id) -> Option<RefuseReason> {
        if !id.is_sync() {
            Some(RefuseReason::NotSync)
        } else if self.channels.get(id.channel).is_some_and(|channel| channel.ids != 1) {
            Some(RefuseReason::SharesChannel)
        } else if id.groups.is_some() {
            Some(RefuseReason::HasGroups)
        } else if id.owed > 0 {
            Some(RefuseReason::OwesAcks)
        } else {
            // Undelivered requests belong to ids that stay in this core.
            (id.requests > 0).then_some(RefuseReason::Busy(RequestKind::Listen))
        }
    }
}
