//! Admission of raw events.

use super::Core;
use super::single::Single;
use crate::channel::{Channel, Phase};
use crate::cm_event::CmEvent;
use crate::error::Fault;
use crate::event::{EventKind, RawEvent};
use crate::id::{DestroyWaiter, Id, SyncState};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::limits::Limits;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Stored;
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

/// The result of the admission of a raw event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The event will be delivered, or has completed a request of synchronous mode.
    Known,
    /// The event is a connection request. The events of the new id are delivered under this key.
    Child(IdKey),
    /// The operation of the event has ended. Counted in [`Counters`](crate::Counters).
    Late,
    /// The id of the event does not belong to this core. Counted in [`Counters`](crate::Counters).
    Stray,
}

impl Core {
    /// Returns the key for a child if the core takes another event of this channel now; `None` if the event must stay
    /// in the kernel. The result is `None`
    ///
    /// - for the channel of a listener, as the next event may be a request: while the number of its untaken requests
    ///   is at its backlog ([`BACKLOG_MAX`](crate::BACKLOG_MAX)), or while no more ids or events are free than the
    ///   [`Limits`](crate::Limits) reserve;
    /// - for any other channel at its own limit on events; at the limit on all events, unless the channel has no
    ///   untaken event;
    /// - for a channel that is [paused](Core::pause_channel), that has [failed](Core::handle_unreadable), or that is
    ///   not open.
    ///
    /// The key is valid only for the next [`handle_event`](Core::handle_event), without a request in between, because a
    /// request may use the key.
    #[must_use]
    #[inline]
    pub fn wants_event(&self, on: ChannelKey) -> Option<IdKey> {
        let channel = self.channels.get(on).filter(|channel| channel.is_read())?;
        // A listener that is not on this channel yet gets no requests on it.
        let has_room = match self.listener_on(channel).filter(|listener| listener.device_channel == on) {
            Some(listener) => self.has_room_for_request(listener),
            None => self.has_room_for_event(on, channel),
        };
        if has_room { self.ids.next_key() } else { None }
    }

    /// Returns the id that this channel is private to, if that id listens.
    #[inline]
    pub(super) fn listener_on(&self, channel: &Channel) -> Option<&Id> {
        // Most channels have no listener.
        let listener = channel.listener?;
        self.ids.get(listener).filter(|id| id.state == State::Listening)
    }

    fn has_room_for_request(&self, listener: &Id) -> bool {
        let has_more = |used: usize, reserved: u32, limit: u32| used < (limit - reserved.min(limit / 2)) as usize;
        listener.requests < listener.backlog
            && has_more(self.ids.len(), self.limits.reserved_ids, self.limits.ids)
            && has_more(self.undelivered() as usize, self.limits.reserved_events, self.limits.events)
    }

    #[inline]
    fn has_room_for_event(&self, on: ChannelKey, channel: &Channel) -> bool {
        has_room(on, channel, self.single.as_ref(), self.pending.of_device(), &self.limits)
    }

    /// Admits one event that the device reported on a channel.
    ///
    /// # Errors
    /// [`Fault`]: the event is not possible now. It is counted, and nothing else changes, with one exception: the new
    /// id of a connection request without a listener is destroyed.
    #[inline]
    pub fn handle_event(&mut self, on: ChannelKey, raw: RawEvent<&[u8]>) -> Result<Admission, Fault> {
        self.take_event(on, &raw)
    }

    /// As `handle_event`, without a copy of the event.
    #[inline]
    pub(crate) fn take_event(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        if self.admit_short(on, raw) { Ok(Admission::Known) } else { self.take_other_event(on, raw) }
    }

    #[inline(never)]
    fn take_other_event(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        if raw.kind == CmEvent::ConnectRequest {
            if let Some(child) = self.wants_event(on) {
                if self.admit_request_short(on, child, raw) {
                    return Ok(Admission::Child(child));
                }
            }
        }
        self.take_any_event(on, raw)
    }

    #[inline(never)]
    pub(super) fn take_any_event(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        let result = if let Some(channel) = self.channels.get_mut(on) {
            channel.failures = 0;
            let is_request = raw.kind == CmEvent::ConnectRequest;
            match raw.listener {
                Some(listener) if is_request => self.admit_request(on, listener, raw),
                None if is_request => Err(Fault::WrongChild { id: raw.id }),
                Some(_) | None => self.admit(on, raw),
            }
        } else {
            Err(Fault::NoSuchChannel { channel: on })
        };
        match result {
            Ok(Admission::Late) => self.counters.late += 1,
            Ok(Admission::Stray) => self.counters.stray += 1,
            Ok(Admission::Known | Admission::Child(_)) => {}
            Err(_) => self.counters.faults += 1,
        }
        result
    }

    pub(super) fn admit(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        let Some(id) = self.ids.get(raw.id) else { return Ok(Admission::Stray) };
        let state = id.state_at_device();
        let rule = id.on_device.transport().event_rule(state, EventColumn::of(raw.kind));
        if rule == EventRule::Fault {
            return Err(Fault::Event { id: raw.id, state, event: raw.kind });
        }
        let answers = ends_connect(raw.kind) && id.on_device.awaits_answer();
        // Even a late event shows that the id is on its new channel.
        if id.arrives_on(on) {
            self.arrive_by_event(raw.id, on);
        }
        if answers {
            self.answered(raw.id);
        }
        let EventRule::Go(next) = rule else { return Ok(Admission::Late) };
        // No other event type belongs to a membership.
        let of_group = matches!(raw.kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
        if of_group && !self.admit_to_group(raw) {
            return Ok(Admission::Late);
        }
        let group = raw.group.filter(|_| of_group);
        let stored = self.stored(raw, None, group);
        // No event makes an id less plain.
        let Some(id) = self.ids.get_untouched(raw.id) else { return Ok(Admission::Stray) };
        id.on_device.note(raw.kind == CmEvent::AddrResolved);
        // An event that does not change the state keeps the state of an accept that has not made its call yet.
        let more = id.enter(if next == state { id.state } else { next });
        // A synchronous join waits for the newest membership, which is the first on the list.
        let answers_join = of_group && group == id.groups;
        let ended = id.waits_for().filter(|&request_kind| ends(request_kind, state, next, answers_join));
        let channel = id.channel;
        if let Some(request_kind) = ended {
            self.end_waiting(raw.id, request_kind, stored);
        } else {
            self.post(stored, channel);
        }
        if more {
            self.entered(raw.id);
        }
        if matches!(raw.kind, CmEvent::Disconnected | CmEvent::Rejected) {
            self.note_teardown(raw.id);
        }
        Ok(Admission::Known)
    }

    /// Handles the end of a connect on an iWARP device, for which a destruction may wait.
    #[inline(never)]
    fn answered(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key) {
            id.on_device.note_answer();
        }
        self.continue_destroy(key);
    }

    /// Synchronous mode: ends the open request with an event.
    #[inline(never)]
    fn end_waiting(&mut self, key: IdKey, request_kind: RequestKind, stored: Stored) {
        let Some(id) = self.ids.get(key) else { return };
        let (moving, channel) = (id.is_moving(), id.channel);
        let ended = if moving {
            SyncState::Posted(request_kind, self.post(stored, channel))
        } else {
            SyncState::Ended(request_kind, self.pending.store(stored))
        };
        self.clear_waiting(key, ended);
    }

    #[inline(never)]
    fn admit_request(&mut self, on: ChannelKey, listener: IdKey, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        if self.channels.get(on).is_none_or(|channel| channel.phase != Phase::Open) {
            return Err(Fault::NoSuchChannel { channel: on });
        }
        let is_over =
            self.ids.get(listener).is_some_and(|id| id.state == State::Listening && id.requests >= id.backlog);
        if is_over || self.wants_event(on) != Some(raw.id) {
            return Err(Fault::WrongChild { id: raw.id });
        }
        // The child's events will be delivered on the same channel as the listener's.
        let (port_space, channel, verdict) = match self.ids.get(listener) {
            Some(id) => (id.port_space, id.channel, table::event_rule(id.state, EventColumn::ConnectRequest)),
            None => (crate::PortSpace::Tcp, on, EventRule::Late),
        };
        let child = self.ids.insert(Id::child(port_space, channel, on)).ok_or(Fault::WrongChild { id: raw.id })?;
        self.join_both(channel, on);
        match verdict {
            EventRule::Go(_) => {
                let stored = self.stored(raw, Some(listener), None);
                match self.ids.get(listener) {
                    Some(id) if id.sync_state == SyncState::For(RequestKind::GetRequest) && !id.is_moving() => {
                        let event_ref = self.pending.store(stored);
                        self.clear_waiting(listener, SyncState::Ended(RequestKind::GetRequest, event_ref));
                    }
                    Some(_) | None => {
                        self.post(stored, channel);
                        if let Some(id) = self.ids.get_mut(listener) {
                            id.requests += 1;
                        }
                    }
                }
                Ok(Admission::Child(child))
            }
            // The application will never get this request. The device rejects the peer when the id is destroyed.
            EventRule::Late | EventRule::Fault => {
                self.begin_destroy(child, Time::NEVER, DestroyWaiter::None);
                match self.state(listener) {
                    None => Ok(Admission::Stray),
                    Some(state) if verdict == EventRule::Fault => {
                        Err(Fault::Event { id: listener, state, event: raw.kind })
                    }
                    Some(_) => Ok(Admission::Late),
                }
            }
        }
    }

    fn stored(&mut self, raw: &RawEvent<&[u8]>, listener: Option<IdKey>, group: Option<GroupKey>) -> Stored {
        let private_data_ref = self.pending.keep(raw.private_data, raw.datagram);
        let stored = Stored::of(raw.id, EventKind::Cm(raw.kind), raw.status, raw.param, private_data_ref);
        match (listener, group) {
            (Some(listener), _) => stored.with_listener(listener),
            (None, Some(group)) => stored.of_group(group),
            (None, None) => stored,
        }
    }
}

/// Whether one more event of this channel is within the limits. `linked` is the number of device events on the lists.
#[inline(always)]
pub(super) fn has_room(
    on: ChannelKey,
    channel: &Channel,
    single: Option<&Single>,
    linked: u32,
    limits: &Limits,
) -> bool {
    let on_channel = channel.pending.counted() + u32::from(single.is_some_and(|single| single.on == on));
    on_channel == 0 || (on_channel < limits.channel_events && linked + u32::from(single.is_some()) < limits.events)
}

/// Whether the device reports this event at the end of a connect.
fn ends_connect(kind: CmEvent) -> bool {
    matches!(
        kind,
        CmEvent::Established
            | CmEvent::Rejected
            | CmEvent::Unreachable
            | CmEvent::ConnectError
            | CmEvent::Disconnected
            | CmEvent::DeviceRemoval
    )
}

/// Whether an event ends a request of synchronous mode: by a change of the state that the request waits in, or as the
/// answer to a join.
fn ends(request_kind: RequestKind, before: State, next: State, answers_join: bool) -> bool {
    if request_kind == RequestKind::Join {
        answers_join || next == State::Removed
    } else {
        // The listening state waits for no event.
        next != before && (request_kind == RequestKind::GetRequest || table::operation(before) == Some(request_kind))
    }
}
