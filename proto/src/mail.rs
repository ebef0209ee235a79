//! Undelivered events: each is on two lists, its channel's (the order of delivery) and its owner's (what moves with the id).
//!
//! Both lists run through one slab, so that moving the k events of an id costs k steps whatever else there is.

use core::hash::{Hash, Hasher};

use slab::Slab;

use crate::event::{Datagram, EventKind, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;

/// The place of an event in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letter(u32);

/// A list through the slab: its ends and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    ends: Option<(Letter, Letter)>,
    pub(crate) len: u32,
}

impl Thread {
    pub(crate) const EMPTY: Thread = Thread { ends: None, len: 0 };

    pub(crate) fn head(&self) -> Option<Letter> {
        self.ends.map(|(head, _)| head)
    }
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) id: IdKey,
    /// For CONNECT_REQUEST: the owner, on whom the ack counts and with whom the event moves.
    pub(crate) listener: Option<IdKey>,
    pub(crate) kind: EventKind,
    pub(crate) status: i32,
    pub(crate) param: ReceivedParam,
    pub(crate) datagram: Option<Datagram>,
    /// For events of a multicast membership.
    pub(crate) group: Option<GroupKey>,
    pub(crate) data: Option<Data>,
}

impl Stored {
    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        let param = ReceivedParam::default();
        Stored { id, listener: None, kind, status, param, datagram: None, group: None, data: None }
    }

    pub(crate) fn owner(&self) -> IdKey {
        self.listener.unwrap_or(self.id)
    }

    /// Whether the device reported it: then it is acked, and counts against the limit.
    pub(crate) fn of_device(&self) -> bool {
        match self.kind {
            EventKind::Cm(_) => true,
            EventKind::Migrated | EventKind::Destroyed | EventKind::Left | EventKind::DeadlinePassed(_) => false,
        }
    }
}

/// The place of private data, kept apart from the events because few have any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data(u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    stored: Stored,
    /// Neighbours in the channel's list.
    before: Option<Letter>,
    after: Option<Letter>,
    /// The next in the owner's list.
    next: Option<Letter>,
}

/// The slab of events and that of private data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    nodes: Slab<Node>,
    data: Slab<PrivateData>,
    of_device: u32,
}

impl Mail {
    /// How many events of the device are on channels' lists; the ones kept for synchronous mode, at most one per id, do
    /// not count.
    pub(crate) fn of_device(&self) -> u32 {
        self.of_device
    }

    /// How many private data are stored, of events and of calls.
    pub(crate) fn data_len(&self) -> usize {
        self.data.len()
    }

    /// How many events have private data.
    pub(crate) fn letters_with_data(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.stored.data.is_some()).count()
    }

    pub(crate) fn nodes_len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Data> {
        if bytes.is_empty() { None } else { Some(Data(self.data.insert(PrivateData::copy_of(bytes)) as u32)) }
    }

    pub(crate) fn data(&self, data: Option<Data>) -> &[u8] {
        data.and_then(|Data(at)| self.data.get(at as usize)).map_or(&[], |data| data)
    }

    pub(crate) fn drop_data(&mut self, data: Option<Data>) -> PrivateData {
        data.and_then(|Data(at)| self.data.try_remove(at as usize)).unwrap_or(PrivateData::EMPTY)
    }

    /// Stores an event on no list.
    pub(crate) fn store(&mut self, stored: Stored) -> Letter {
        Letter(self.nodes.insert(Node { stored, before: None, after: None, next: None }) as u32)
    }

    pub(crate) fn get(&self, letter: Letter) -> &Stored {
        &self.nodes[letter.0 as usize].stored
    }

    /// Takes an event that is on no list.
    pub(crate) fn take(&mut self, letter: Letter) -> Stored {
        self.nodes.remove(letter.0 as usize).stored
    }

    fn node(&mut self, letter: Letter) -> &mut Node {
        &mut self.nodes[letter.0 as usize]
    }

    /// Appends to a channel's list.
    pub(crate) fn append(&mut self, channel: &mut Thread, letter: Letter) {
        let last = channel.ends.map(|(_, tail)| tail);
        let node = self.node(letter);
        (node.before, node.after) = (last, None);
        if let Some(last) = last {
            self.node(last).after = Some(letter);
        }
        channel.ends = Some((channel.head().unwrap_or(letter), letter));
        channel.len += 1;
        self.of_device += u32::from(self.get(letter).of_device());
    }

    /// Takes out of a channel's list, wherever it stands.
    pub(crate) fn unlink(&mut self, channel: &mut Thread, letter: Letter) {
        let (before, after) = {
            let node = self.node(letter);
            (node.before.take(), node.after.take())
        };
        if let Some(before) = before {
            self.node(before).after = after;
        }
        if let Some(after) = after {
            self.node(after).before = before;
        }
        channel.ends = channel.ends.and_then(|(head, tail)| {
            let head = if head == letter { after } else { Some(head) };
            let tail = if tail == letter { before } else { Some(tail) };
            head.zip(tail)
        });
        channel.len -= 1;
        self.of_device -= u32::from(self.get(letter).of_device());
    }

    /// Appends to an owner's list.
    pub(crate) fn own(&mut self, owner: &mut Thread, letter: Letter) {
        self.node(letter).next = None;
        if let Some((_, tail)) = owner.ends {
            self.node(tail).next = Some(letter);
        }
        owner.ends = Some((owner.head().unwrap_or(letter), letter));
        owner.len += 1;
    }

    /// Puts at the front of an owner's list.
    pub(crate) fn own_first(&mut self, owner: &mut Thread, letter: Letter) {
        self.node(letter).next = owner.head();
        owner.ends = Some((letter, owner.ends.map_or(letter, |(_, tail)| tail)));
        owner.len += 1;
    }

    /// The next event of the same owner.
    pub(crate) fn next_owned(&self, letter: Letter) -> Option<Letter> {
        self.nodes[letter.0 as usize].next
    }

    /// Takes an event out of its owner's list. It is the first, unless it ended a synchronous request or is of a group
    /// that is left.
    pub(crate) fn disown(&mut self, owner: &mut Thread, letter: Letter) {
        let after = self.node(letter).next.take();
        let before = match owner.head() {
            Some(head) if head == letter => None,
            mut at => {
                while let Some(here) = at
                    && self.next_owned(here) != Some(letter)
                {
                    at = self.next_owned(here);
                }
                at
            }
        };
        if let Some(before) = before {
            self.node(before).next = after;
        }
        owner.ends = owner.ends.and_then(|(head, tail)| {
            let head = if head == letter { after } else { Some(head) };
            let tail = if tail == letter { before } else { Some(tail) };
            head.zip(tail)
        });
        owner.len -= 1;
    }

    /// The letters of an owner's list, in order.
    pub(crate) fn owned<'a>(&'a self, owner: &Thread) -> impl Iterator<Item = Letter> + use<'a> {
        core::iter::successors(owner.head(), |&letter| self.next_owned(letter))
    }

    /// The letters of a channel's list, in order.
    pub(crate) fn letters<'a>(&'a self, channel: &Thread) -> impl Iterator<Item = Letter> + 'a {
        core::iter::successors(channel.head(), |letter| self.nodes[letter.0 as usize].after)
    }
}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        self.nodes.iter().eq(other.nodes.iter())
            && self.data.iter().eq(other.data.iter())
            && self.nodes.vacant_key() == other.nodes.vacant_key()
    }
}
impl Eq for Mail {}

impl Hash for Mail {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for entry in &self.nodes {
            entry.hash(state);
        }
        for entry in &self.data {
            entry.hash(state);
        }
    }
}
