//! Raw events in.

use super::Core;
use crate::error::Fault;
use crate::event::{CmEvent, EventKind, RawEvent};
use crate::id::{Doing, Id, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::mail::Stored;
use crate::state::State;
use crate::table::{self, Fact, Tell};

/// What became of a raw event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It will be delivered, or it completed a request of synchronous mode.
    Known,
    /// A connection request: the new id's events will be delivered under this key.
    Child(IdKey),
    /// What it belongs to is over; counted.
    Late,
    /// Its id is not of this core; counted.
    Stray,
}

impl Core {
    /// Whether the core takes another event of this channel now, and under which key a child would be filed. `None`
    /// means: leave it in the kernel, which keeps it.
    ///
    /// The key is for the very next [`handle_event`](Core::handle_event); any request in between may take it.
    #[must_use]
    pub fn wants_event(&self, on: ChannelKey) -> Option<IdKey> {
        if self.mail.of_device() >= self.limits.events || !self.channels.contains(on) {
            None
        } else {
            self.ids.next_key()
        }
    }

    /// Takes one event that the device reported on a channel.
    ///
    /// # Errors
    /// [`Fault`]: the device cannot mean it; counted, and nothing else has changed.
    pub fn handle_event(&mut self, on: ChannelKey, raw: RawEvent<'_>) -> Result<Admission, Fault> {
        let result = if !self.channels.contains(on) {
            Err(Fault::NoSuchChannel { channel: on })
        } else {
            match raw.listener {
                Some(listener) => self.admit_request(on, listener, raw),
                None => self.admit(on, raw),
            }
        };
        match result {
            Ok(Admission::Late) => self.counters.late += 1,
            Ok(Admission::Stray) => self.counters.stray += 1,
            Ok(Admission::Known | Admission::Child(_)) => {}
            Err(_) => self.counters.faults += 1,
        }
        result
    }

    fn admit(&mut self, on: ChannelKey, raw: RawEvent<'_>) -> Result<Admission, Fault> {
        let Some(id) = self.ids.get(raw.id) else { return Ok(Admission::Stray) };
        let (state, doing, waiting) = (id.state, id.doing, id.waiting);
        let next = match table::tell(state, Fact::of(raw.kind)) {
            Tell::Go(next) => next,
            Tell::Late => return Ok(Admission::Late),
            Tell::Fault => return Err(Fault::Event { id: raw.id, state, event: raw.kind }),
        };
        // The device reports on the new channel before it has told that the migration succeeded: it has.
        if let Doing::Move { to, by_event } = doing
            && to == on
        {
            self.arrive(raw.id, to, by_event);
        }
        self.set_state(raw.id, next);
        let Some(id) = self.ids.get_mut(raw.id) else { return Ok(Admission::Stray) };
        if raw.kind == CmEvent::AddrResolved {
            id.has_device = true;
        }
        let stored = self.stored(raw);
        match waiting {
            // A request of synchronous mode ends by the event that takes the id out of the request's own state.
            Waiting::For(verb) if next != state && table::operation(state) == Some(verb) => {
                let letter = self.mail.store(stored);
                self.clear_waiting(raw.id, Waiting::Ended(verb, letter));
            }
            Waiting::For(_) | Waiting::Never | Waiting::Ended(..) | Waiting::Without { .. } => {
                let home = self.home(raw.id).unwrap_or(on);
                self.post(stored, home);
            }
        }
        Ok(Admission::Known)
    }

    fn admit_request(&mut self, on: ChannelKey, listener: IdKey, raw: RawEvent<'_>) -> Result<Admission, Fault> {
        if self.ids.next_key() != Some(raw.id) {
            return Err(Fault::WrongChild { id: raw.id });
        }
        let (port_space, verdict) = match self.ids.get(listener) {
            Some(id) => (id.port_space, table::tell(id.state, Fact::ConnectRequest)),
            None => (crate::PortSpace::Tcp, Tell::Late),
        };
        let child = self.ids.insert(Id::child(port_space, on)).ok_or(Fault::WrongChild { id: raw.id })?;
        self.join_channel(on);
        match verdict {
            Tell::Go(_) => {
                // A listener's undelivered requests are on its own channel, which may be another one by now.
                let home = self.home(listener).unwrap_or(on);
                let stored = self.stored(raw);
                self.post(stored, home);
                Ok(Admission::Child(child))
            }
            // Nobody will ever answer it: the device rejects the peer when the id goes.
            Tell::Late | Tell::Fault => {
                self.set_state(child, State::Destroying);
                self.call_destroy(child);
                Ok(if self.ids.contains(listener) { Admission::Late } else { Admission::Stray })
            }
        }
    }

    fn stored(&mut self, raw: RawEvent<'_>) -> Stored {
        Stored {
            id: raw.id,
            listener: raw.listener,
            kind: EventKind::Cm(raw.kind),
            status: raw.status,
            param: raw.param,
            data: self.mail.keep(raw.private_data),
        }
    }
}
