//! An id goes from one core, and one thread, to another.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Core;
use crate::alarm::Armed;
use crate::channel::{Channel, Phase};
use crate::error::{Refused, Why};
use crate::event::CmEvent;
use crate::id::{Id, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::mail::{Enclosure, Letter, Thread};
use crate::request::{Acks, Verb};
use crate::state::State;
use crate::stored::Stored;
use crate::table;
use crate::time::Time;

/// An id between two cores, with its undelivered events. It is to be [adopted](Core::adopt), together with the
/// device's half.
#[derive(Debug)]
#[must_use = "the id lives on in the device"]
pub struct Released(Box<Parts>);

#[derive(Debug)]
struct Parts {
    id: Id,
    mail: Vec<(Stored, Option<Enclosure>)>,
    /// The event that completed its last synchronous request, if that has one.
    ended: Option<(Verb, Stored, Option<Enclosure>)>,
}

impl Released {
    /// The state that the id is in.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.id.state
    }
}

impl Core {
    /// Takes an id in synchronous mode out of this core, with its undelivered events. Its key is stale from now on.
    /// Returns the private channel's key too, for [`Device::release`](crate::Device::release).
    ///
    /// An open request goes along, with its deadline: both cores must count time from the same epoch.
    ///
    /// # Errors
    /// [`Refused`] if the id is not in synchronous mode, shares its channel (a listener and the [ids of its
    /// requests](Core::ids_away_on), which can be migrated), a call is under way, it is a member of multicast groups, acks are
    /// owed, or requests for it wait to be taken.
    pub fn release(&mut self, key: IdKey) -> Result<(Released, ChannelKey), Refused> {
        let id = self.would_release(key)?;
        let (home, waiting) = (id.home, id.waiting);
        let mut mail = Vec::new();
        while let Some(letter) = self.ids.get(key).and_then(|id| id.mail.head()) {
            self.detach(letter, home);
            mail.push(self.take_whole(letter));
        }
        let ended = match waiting {
            Waiting::Ended(verb, letter) => {
                let (stored, enclosure) = self.take_whole(letter);
                // An event about an id that stays here is of no use there.
                (verb != Verb::GetRequest || stored.listener().is_none()).then_some((verb, stored, enclosure))
            }
            Waiting::Never | Waiting::For(_) | Waiting::Posted(..) | Waiting::Without { .. } => None,
        };
        let waiting = if matches!(waiting, Waiting::Ended(..)) { Waiting::Never } else { waiting };
        // The deadline goes along; only its place in this core's heap does not.
        let deadline = self.ids.get(key).map_or(Time::NEVER, |id| id.deadline);
        self.set_deadline(key, Time::NEVER);
        self.remove_channel(home);
        match self.ids.remove(key).cloned() {
            Some(id) => Ok((Released(Box::new(Parts { id: Id { deadline, waiting, ..id }, mail, ended })), home)),
            None => Err(Refused::NoSuchId { id: key, request: Verb::Release }),
        }
    }

    /// The id, if nothing keeps it in this core.
    pub(crate) fn would_release(&self, key: IdKey) -> Result<&Id, Refused> {
        let id = self.get(key, Verb::Release)?;
        let cell = table::ask(id.state, Verb::Release, id.port_space.service());
        let why = cell.err().or(id.busy()).or_else(|| self.held_here(id));
        why.map_or(Ok(id), |why| Err(self.refusal(key, Verb::Release, why)))
    }

    /// Takes in an id that another core released: in synchronous mode, in the state it was in, on a new private
    /// channel. The device's half is adopted under the same two keys before anything else is done with it.
    ///
    /// The deadline of a request that is still open is taken as it is: this core must count [`Time`] from the same epoch
    /// as the one that released the id.
    ///
    /// # Errors
    /// [`Refused::Full`] and the id again, at the limit on ids or channels.
    pub fn adopt(&mut self, released: Released) -> Result<(IdKey, ChannelKey), (Refused, Released)> {
        if !self.has_room() {
            return Err((Refused::Full("ids"), released));
        }
        let listens = released.state() == State::Listening;
        let channel = Channel { phase: Phase::Open, ids: 1, ..Channel::new(Acks::OnDelivery, true) };
        let Some(home) = self.channels.insert(channel) else { return Err((Refused::Full("channels"), released)) };
        let Parts { id, mail, ended } = *released.0;
        let (deadline, waiting) = (id.deadline, id.waiting);
        let fresh = Id {
            home,
            line: home,
            // The old receipts are of the old key.
            waived: false,
            mail: Thread::EMPTY,
            deadline: Time::NEVER,
            armed: Armed::NOT,
            waiting: Waiting::Never,
            ..id
        };
        let Some(key) = self.ids.insert(fresh) else {
            let released = Released(Box::new(Parts { id, mail, ended }));
            return Err((Refused::Full("ids"), released));
        };
        if listens && let Some(channel) = self.channels.get_mut(home) {
            channel.listener = Some(key);
        }
        self.set_deadline(key, deadline);
        for (stored, enclosure) in mail {
            let stored = self.rekeyed(stored, enclosure.as_ref(), key);
            self.post(stored, home);
        }
        let waiting = match ended {
            Some((verb, stored, enclosure)) => {
                let stored = self.rekeyed(stored, enclosure.as_ref(), key);
                Waiting::Ended(verb, self.mail.store(stored))
            }
            None => waiting,
        };
        self.clear_waiting(key, waiting);
        self.handle_readable(home);
        Ok((key, home))
    }

    /// What keeps an id in this core.
    fn held_here(&self, id: &Id) -> Option<Why> {
        if !id.sync {
            Some(Why::NotSync)
        } else if self.channels.get(id.home).is_some_and(|channel| channel.ids != 1) {
            Some(Why::SharesChannel)
        } else if id.groups.is_some() {
            Some(Why::HasGroups)
        } else if id.owed > 0 {
            Some(Why::OwesAcks)
        } else {
            // Undelivered requests are about ids that stay.
            self.first_of(id, CmEvent::ConnectRequest).map(|_| Why::Busy(Verb::Listen))
        }
    }

    fn take_whole(&mut self, letter: Letter) -> (Stored, Option<Enclosure>) {
        let stored = self.mail.take(letter);
        let enclosure = self.mail.enclosure(stored.enclosed).cloned();
        self.mail.discard(stored.enclosed);
        (stored, enclosure)
    }

    fn rekeyed(&mut self, stored: Stored, enclosure: Option<&Enclosure>, key: IdKey) -> Stored {
        let enclosed = enclosure.and_then(|it| self.mail.keep(&it.private_data, it.datagram));
        stored.rekeyed(key, enclosed)
    }
}
