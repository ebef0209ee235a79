//! Admission of raw events.

use super::Core;
use crate::cells::{self, Cell, Effects};
use crate::cm_event::CmEvent;
use crate::error::Fault;
use crate::event::{AckToken, Event, RawEvent};
use crate::id::{DestroyReport, Facts, Id, Rare};
use crate::key::{ChannelKey, IdKey};
use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Of;
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

use super::next::Due;

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

impl Admission {
    /// Of an event that is delivered or stored.
    pub(super) fn of(raw: &RawEvent<&[u8]>) -> Self {
        if raw.kind == CmEvent::ConnectRequest { Admission::Child(raw.id) } else { Admission::Known }
    }
}

/// What the admission of a raw event leaves to do.
pub(crate) enum Admitted {
    /// It is the next event of the channel that was asked for, and is to be delivered with this token.
    Next(Of, Option<AckToken>),
    /// It waits, or it is not delivered.
    Other(Result<Admission, Fault>),
}

impl Admitted {
    /// Returns the result of the admission of this event.
    pub(crate) fn result(&self, raw: &RawEvent<&[u8]>) -> Result<Admission, Fault> {
        match *self {
            Admitted::Next(..) => Ok(Admission::of(raw)),
            Admitted::Other(result) => result,
        }
    }
}

impl Core {
    /// Admits one event that the device reported on a channel.
    ///
    /// # Errors
    /// [`Fault`]: the event is not possible now. It is counted, and nothing else changes, with one exception: the new
    /// id of a connection request without a listener is destroyed.
    pub fn handle_event(&mut self, on: ChannelKey, raw: RawEvent<&[u8]>) -> Result<Admission, Fault> {
        self.admit(on, &raw, None).result(&raw)
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
            Admitted::Next(of, ack_token) if raw.is_bare() => (Ok(Admission::of(raw)), Some(raw.bare(of, ack_token))),
            Admitted::Next(of, ack_token) => (Ok(Admission::of(raw)), raw.whole(of, ack_token)),
            Admitted::Other(result) => (result, None),
        }
    }

    /// Admits an event. It is delivered if it is the next one of the channel `to`.
    #[inline(always)]
    pub(crate) fn admit(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>, to: Option<ChannelKey>) -> Admitted {
        let Some(channel) = self.channels.get_mut(on) else {
            return self.counted(Err(Fault::NoSuchChannel { channel: on }));
        };
        channel.failures = 0;
        let (is_next, acks) = (to == Some(on) && channel.events.is_empty(), channel.acks);
        if raw.kind == CmEvent::ConnectRequest {
            return match self.admit_request(on, raw, to) {
                Admitted::Other(result) => self.counted(result),
                next @ Admitted::Next(..) => next,
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
        match ack_token {
            Some(ack_token) => Admitted::Next(of, ack_token),
            None => self.deliver(channel, raw, to),
        }
    }

    /// Counts an event if it has no effect.
    #[cold]
    fn counted(&mut self, result: Result<Admission, Fault>) -> Admitted {
        match result {
            Ok(Admission::Late) => self.counters.late += 1,
            Ok(Admission::Stray) => self.counters.stray += 1,
            Ok(Admission::Known | Admission::Child(_)) => {}
            Err(_) => self.counters.faults += 1,
        }
        Admitted::Other(result)
    }

    /// Admits an event without effect, one of a membership, or one of an id for which something is rare.
    #[cold]
    fn admit_rare(&mut self, raw: &RawEvent<&[u8]>, cell: Cell, to: Option<ChannelKey>) -> Admitted {
        let Some(id) = self.ids.get_mut(raw.id) else { return self.counted(Ok(Admission::Stray)) };
        let before = id.state;
        if cell.has(Effects::FAULT) {
            return self.counted(Err(Fault::Event { id: raw.id, state: before, event: raw.kind }));
        }
        if ends_connect(raw.kind) && id.facts.contains(Facts::AWAITS_ANSWER) {
            id.facts.remove(Facts::AWAITS_ANSWER);
            self.continue_destroy(raw.id);
        }
        let of_group = raw.kind.is_of_group();
        if cell.has(Effects::LATE) || (of_group && !self.admit_to_group(raw)) {
            return self.counted(Ok(Admission::Late));
        }
        let Some(id) = self.ids.get_mut(raw.id) else { return self.counted(Ok(Admission::Stray)) };
        id.facts |= if cell.has(Effects::BINDS) { Facts::HAS_DEVICE } else { Facts::empty() };
        let is_stale = id.enter(cell, Time::NEVER, raw.id, &mut self.deadlines);
        if cell.state != State::Closing {
            id.rare.remove(Rare::DISCONNECT_DUE);
        }
        let channel = id.channel;
        // A synchronous join waits for the newest membership, which is the first on the list.
        let answers_join = of_group && raw.group == id.groups;
        let ended = id.waits_for().filter(|&request| ends(request, before, cell.state, answers_join));
        if is_stale {
            self.drop_stale();
        }
        let admitted = match ended {
            Some(request) => self.end_by_event(raw.id, request, raw),
            None => self.deliver(channel, raw, to),
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
        admitted
    }

    /// Ends the open request of an id in synchronous mode by an event, which is not delivered then.
    fn end_by_event(&mut self, key: IdKey, request: RequestKind, raw: &RawEvent<&[u8]>) -> Admitted {
        let stored = self.store(raw);
        self.end_sync(key, request, stored);
        Admitted::Other(Ok(Admission::of(raw)))
    }

    fn admit_request(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>, to: Option<ChannelKey>) -> Admitted {
        if self.channels.get(on).is_none_or(|channel| channel.closing) {
            return Admitted::Other(Err(Fault::NoSuchChannel { channel: on }));
        }
        let wrong = Admitted::Other(Err(Fault::WrongChild { id: raw.id }));
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
            return if is_awaited {
                self.end_by_event(listener, RequestKind::GetRequest, raw)
            } else {
                self.deliver(channel, raw, to)
            };
        }
        // The application will never get this request. The device rejects the peer when the id is destroyed.
        self.end_all(child, DestroyReport::Nothing);
        self.due.push_back(Due::Destroy(child));
        Admitted::Other(match self.state(listener) {
            None => Ok(Admission::Stray),
            Some(state) if verdict == EventRule::Fault => Err(Fault::Event { id: listener, state, event: raw.kind }),
            Some(_) => Ok(Admission::Late),
        })
    }
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
