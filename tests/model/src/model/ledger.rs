//! The expected undelivered events: a queue for each channel, moved with the ids.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::{ChannelKey, CmEvent, Core, Event, GroupKey, IdKey};

use crate::say::say;

/// An event that the core has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedEvent {
    /// Its unique number, carried in the QP number and in the private data.
    pub(crate) number: u32,
    pub(crate) owner: IdKey,
    pub(crate) id: IdKey,
    pub(crate) listener: Option<IdKey>,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    pub(crate) group: Option<GroupKey>,
}

impl ExpectedEvent {
    /// The private data that an event of this kind carries, marked with its number.
    pub(crate) fn data(number: u32, kind: CmEvent) -> Vec<u8> {
        let len = match kind {
            CmEvent::ConnectRequest => 56,
            CmEvent::ConnectResponse | CmEvent::Established => 196,
            CmEvent::Rejected => 148,
            _ => return Vec::new(),
        };
        let mut data = number.to_le_bytes().to_vec();
        data.resize(len, 0);
        data
    }

    fn is(&self, event: &Event) -> bool {
        event.param.qp_num == self.number
            && event.cm() == Some(self.kind)
            && (event.id, event.listener, event.status) == (self.id, self.listener, self.status)
            && event.group == self.group
            && *event.private_data == Self::data(self.number, self.kind)
    }
}

/// All undelivered events of one core.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    channels: BTreeMap<ChannelKey, VecDeque<ExpectedEvent>>,
    /// The channel on which the application expects the events of each id.
    pub(crate) homes: BTreeMap<IdKey, ChannelKey>,
}

impl Ledger {
    /// Adds an id.
    pub(crate) fn track(&mut self, core: &Core, id: IdKey) {
        if let Some(home) = core.channel(id) {
            self.homes.insert(id, home);
        }
    }

    /// Follows the ids: moves their events to the end of their new channels, or drops them with the ids.
    pub(crate) fn follow(&mut self, core: &Core) {
        let moved: Vec<_> =
            self.homes.iter().filter(|&(&id, &home)| core.channel(id) != Some(home)).map(|(&id, _)| id).collect();
        for id in moved {
            let letters = self.discard(|letter| letter.owner == id);
            match core.channel(id) {
                Some(home) => {
                    self.homes.insert(id, home);
                    self.channels.entry(home).or_default().extend(letters);
                }
                None => drop(self.homes.remove(&id)),
            }
        }
    }

    /// Handles a move to the same channel: the events go to the end nevertheless.
    pub(crate) fn requeue(&mut self, id: IdKey) {
        let numbers = |letters: Option<&VecDeque<ExpectedEvent>>| -> Vec<_> {
            letters.into_iter().flatten().map(|letter| letter.number).collect()
        };
        let before = self.homes.get(&id).map(|home| numbers(self.channels.get(home)));
        let letters = self.discard(|letter| letter.owner == id);
        if let Some(home) = self.homes.get(&id) {
            self.channels.entry(*home).or_default().extend(letters);
            if before != Some(numbers(self.channels.get(home))) {
                say(|| format!("  {id}'s events go to the end of {home}"));
            }
        }
    }

    /// The core has taken an event.
    pub(crate) fn admit(&mut self, letter: ExpectedEvent) {
        let home = self.homes[&letter.owner];
        self.channels.entry(home).or_default().push_back(letter);
    }

    /// Removes the events that end a synchronous request: they stay with their id.
    pub(crate) fn take_result(&mut self, id: IdKey, event: &Event) {
        let Some(home) = self.homes.get(&id) else { return };
        if event.cm().is_some()
            && let Some(letters) = self.channels.get_mut(home)
            && let Some(at) = letters.iter().position(|letter| letter.number == event.param.qp_num)
        {
            let letter = letters[at];
            assert!(letter.owner == id && letter.is(event), "{event:?} is the result where {letter:?} was meant");
            letters.remove(at);
        }
    }

    /// The device's next event of a channel, delivered.
    pub(crate) fn deliver(&mut self, on: ChannelKey, event: &Event) -> ExpectedEvent {
        let next = self.channels.get_mut(&on).and_then(VecDeque::pop_front);
        match next {
            Some(letter) if letter.is(event) => letter,
            other => panic!("{event:?} on {on} where {other:?} was next"),
        }
    }

    pub(crate) fn is_empty(&self, on: ChannelKey) -> bool {
        self.channels.get(&on).is_none_or(VecDeque::is_empty)
    }

    /// The undelivered events of a channel.
    pub(crate) fn on(&self, channel: ChannelKey) -> impl Iterator<Item = &ExpectedEvent> {
        self.channels.get(&channel).into_iter().flatten()
    }

    /// All undelivered events.
    pub(crate) fn undelivered(&self) -> impl Iterator<Item = &ExpectedEvent> {
        self.channels.values().flatten()
    }

    /// Takes events that must not be delivered here.
    pub(crate) fn discard(&mut self, which: impl Fn(&ExpectedEvent) -> bool) -> Vec<ExpectedEvent> {
        let mut gone = Vec::new();
        for letters in self.channels.values_mut() {
            letters.retain(|letter| {
                let goes = which(letter);
                gone.extend(goes.then_some(*letter));
                !goes
            });
        }
        gone
    }
}
