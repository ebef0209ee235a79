//! Admission of raw events.

use super::Core;
use crate::cells::{self, Cell, Effects};
use crate::cm_event::CmEvent;
use crate::error::Fault;
use crate::event::{Event, RawEvent};
use crate::id::{DestroyReport, Facts, Id, Rare};
use crate::key::{ChannelKey, IdKey};
use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::{Delivery, Of};
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

use super::due::Due;

/// The result of the admission of a raw event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The event will be delivered, or has completed a request of synchronous mode.
    Known,
    /// The event is a connection request. The events of the new id are delivered under this key.
    Child(IdKey),
    /// The operation of the event has ended. Counted in [`Counters`](crate::info::Counters).
    Late,
    /// The id of the event does not belong to this core. Counted in [`Counters`](crate::info::Counters).
    Stray,
}

impl Core {
    /// Admits one event that the device reported on a channel.
    ///
    /// # Errors
    /// [`Fault`]: the event is not possible now. It is counted, and nothing else changes, with one exception: the new
    /// id of a connection request without a listener is destroyed.
    pub fn handle_event(&mut self, on: ChannelKey, raw: RawEvent<&[u8]>) -> Result<Admission, Fault> {
        self.admit(on, &raw, None).0
    }

    /// As [`handle_event`](Core::handle_event), and returns the event if it is the next one that
    /// [`poll_event`](Core::poll_event) would return for the channel `to`. An event that others precede, or that is
    /// delivered on another channel, waits in the queue of its channel. An event that is returned is no
    /// [activity](Core::activity).
    ///
    /// # Errors
    /// As those of [`handle_event`](Core::handle_event).
    #[inline(always)]
    pub fn take_event(
        &mut self,
        on: ChannelKey,
        raw: &RawEvent<&[u8]>,
        to: ChannelKey,
    ) -> (Result<Admission, Fault>, Option<Event>) {
        match self.admit(on, raw, Some(to)) {
            (result, Some(delivery)) if raw.is_bare() => (result, Some(delivery.bare(raw))),
            (result, Some(delivery)) => (result, delivery.whole(raw)),
            (result, None) => (result, None),
        }
    }

    /// Admits an event. Returns how it is delivered if it is the next one of the channel `to`.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        on: ChannelKey,
        raw: &RawEvent<&[u8]>,
        to: Option<ChannelKey>,
    ) -> (Result<Admission, Fault>, Option<Delivery>) {
        let Some(channel) = self.channels.get_mut(on) else {
            return self.counted(Err(Fault::NoSuchChannel { channel: on }));
        };
        channel.failures = 0;
        let (is_next, acks) = (to == Some(on) && channel.events.is_empty(), channel.acks);
        if raw.kind == CmEvent::ConnectRequest {
            return match self.admit_request(on, raw, to) {
                (result @ Ok(Admission::Child(_)), delivery) => (result, delivery),
                (result, _) => self.counted(result),
            };
        }
        let Some(id) = self.ids.get_mut(raw.id) else { return self.counted(Ok(Admission::Stray)) };
        let cell = cells::event(id.transport(), id.state, EventColumn::of(raw.kind));
        if !id.rare.is_empty() || cell.has(Effects::RARE) {
            return self.admit_rare(raw, cell, to);
        }
        id.facts |= if cell.has(Effects::BINDS) { Facts::HAS_DEVICE } else { Facts::empty() };
        let is_stale = id.enter(cell, Time::NEVER, raw.id, &mut self.deadlines);
        let (of, channel) = (Of::id(raw.id), id.channel);
        let ack_token = if is_next && channel == on { Some(id.owe(of, acks)) } else { None };
        if is_stale {
            self.drop_stale();
        }
        let delivery = match ack_token {
            Some(ack_token) => Some(Delivery { of, ack_token }),
            None => self.deliver(channel, raw, of, to),
        };
        (Ok(Admission::Known), delivery)
    }

    /// Counts an event without effect.
    #[cold]
    fn counted(&mut self, result: Result<Admission, Fault>) -> (Result<Admission, Fault>, Option<Delivery>) {
        match result {
            Ok(Admission::Late) => self.counters.late += 1,
            Ok(Admission::Stray) => self.counters.stray += 1,
            Ok(Admission::Known | Admission::Child(_)) => {}
            Err(_) => self.counters.faults += 1,
        }
        (result, None)
    }

    /// Admits an event without effect, one of a membership, or one of an id for which something is rare.
    #[cold]
    fn admit_rare(
        &mut self,
        raw: &RawEvent<&[u8]>,
        cell: Cell,
        to: Option<ChannelKey>,
    ) -> (Result<Admission, Fault>, Option<Delivery>) {
        let Some(id) = self.ids.get_mut(raw.id) else { return self.counted(Ok(Admission::Stray)) };
        let before = id.state;
        if cell.has(Effects::FAULT) {
            return self.counted(Err(Fault::Event { id: raw.id, state: before, event: raw.kind }));
        }
        if ends_connect(raw.kind) && id.facts.contains(Facts::AWAITS_ANSWER) {
            id.facts.remove(Facts::AWAITS_ANSWER);
            self.continue_destroy(raw.id);
        }
        if cell.has(Effects::LATE) || (of_group(raw.kind) && !self.admit_to_group(raw)) {
            return self.counted(Ok(Admission::Late));
        }
        if let Some(id) = self.ids.get_mut(raw.id) {
            id.facts |= if cell.has(Effects::BINDS) { Facts::HAS_DEVICE } else { Facts::empty() };
            if id.enter(cell, Time::NEVER, raw.id, &mut self.deadlines) {
                self.drop_stale();
            }
        }
        (Ok(Admission::Known), self.post_rare(raw, before, cell, to))
    }

    /// What follows the change of state: the event ends a request of synchronous mode, or is delivered.
    fn post_rare(
        &mut self,
        raw: &RawEvent<&[u8]>,
        before: State,
        cell: Cell,
        to: Option<ChannelKey>,
    ) -> Option<Delivery> {
        let group = raw.group.filter(|_| of_group(raw.kind));
        let of = Of { group, ..Of::id(raw.id) };
        let id = self.ids.get_mut(raw.id)?;
        if cell.state != State::Closing {
            id.rare.remove(Rare::DISCONNECT_DUE);
        }
        let channel = id.channel;
        // A synchronous join waits for the newest membership, which is the first on the list.
        let answers_join = group.is_some() && group == id.groups;
        let ended = id.waits_for().filter(|&request| ends(request, before, cell.state, answers_join));
        let delivery = match ended {
            Some(request) => {
                let stored = self.store(raw, of);
                self.end_sync(raw.id, request, stored);
                None
            }
            None => self.deliver(channel, raw, of, to),
        };
        if cell.state == State::Removed {
            self.end_joins(raw.id);
        }
        if cell.state == State::Closing && matches!(raw.kind, CmEvent::Disconnected | CmEvent::Rejected) {
            self.disconnect_again(raw.id);
        }
        if before == State::Listening {
            self.unpark();
        }
        delivery
    }

    fn admit_request(
        &mut self,
        on: ChannelKey,
        raw: &RawEvent<&[u8]>,
        to: Option<ChannelKey>,
    ) -> (Result<Admission, Fault>, Option<Delivery>) {
        if self.channels.get(on).is_none_or(|channel| channel.closing) {
            return (Err(Fault::NoSuchChannel { channel: on }), None);
        }
        let wrong = (Err(Fault::WrongChild { id: raw.id }), None);
        let Some(listener) = raw.listener else { return wrong };
        let found = self.ids.get(listener);
        let is_over = |id: &Id| id.state == State::Listening && id.requests >= id.backlog;
        if found.is_some_and(is_over) || self.wants_event(on) != Some(raw.id) {
            return wrong;
        }
        // The child's events will be delivered on the same channel as the listener's.
        let (port_space, channel, verdict, is_awaited) = match found {
            Some(id) => {
                let verdict = table::event_rule(id.state, EventColumn::ConnectRequest);
                (id.port_space, id.channel, verdict, id.waits_for() == Some(RequestKind::GetRequest))
            }
            None => (PortSpace::Tcp, on, EventRule::Late, false),
        };
        let Some(child) = self.ids.insert(Id::child(port_space, channel, on)) else { return wrong };
        self.join_both(channel, on);
        if let EventRule::Go(_) = verdict {
            let of = Of { listener: Some(listener), ..Of::id(raw.id) };
            let delivery = if is_awaited {
                let stored = self.store(raw, of);
                self.end_sync(listener, RequestKind::GetRequest, stored);
                None
            } else {
                self.deliver(channel, raw, of, to)
            };
            return (Ok(Admission::Child(child)), delivery);
        }
        // The application will never get this request. The device rejects the peer when the id is destroyed.
        self.end_all(child, DestroyReport::Nothing);
        self.due.push_back(Due::Destroy(child));
        let result = match self.state(listener) {
            None => Ok(Admission::Stray),
            Some(state) if verdict == EventRule::Fault => Err(Fault::Event { id: listener, state, event: raw.kind }),
            Some(_) => Ok(Admission::Late),
        };
        (result, None)
    }
}

/// Whether the event belongs to a membership.
fn of_group(kind: CmEvent) -> bool {
    matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError)
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
