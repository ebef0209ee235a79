//! Undelivered events: each is on two lists, its channel's (the order of delivery) and its owner's (what moves with the id).
//!
//! Both lists run through one slab, so that moving the k events of an id costs k steps whatever else there is.

use core::hash::{Hash, Hasher};
use core::num::NonZeroU32;

use slab::Slab;

use crate::event::{Datagram, EventKind, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;

/// A place in a slab, such that an `Option` of it takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place(NonZeroU32);

impl Place {
    fn new(index: usize) -> Self {
        Place(NonZeroU32::MIN.saturating_add(index as u32))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The place of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letter(Place);

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

    /// A letter between these two is taken out.
    fn shrink(&mut self, letter: Letter, before: Option<Letter>, after: Option<Letter>) {
        self.ends = self.ends.and_then(|(head, tail)| {
            let head = if head == letter { after } else { Some(head) };
            let tail = if tail == letter { before } else { Some(tail) };
            head.zip(tail)
        });
        self.len -= 1;
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
    /// For events of a multicast membership.
    pub(crate) group: Option<GroupKey>,
    pub(crate) enclosed: Option<Enclosed>,
}

impl Stored {
    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        let param = ReceivedParam::default();
        Stored { id, listener: None, kind, status, param, group: None, enclosed: None }
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

/// The place of an enclosure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Enclosed(Place);

/// What is kept apart from events and calls because few have any: it is larger than all the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Enclosure {
    pub(crate) private_data: PrivateData,
    pub(crate) datagram: Option<Datagram>,
}

impl Enclosure {
    pub(crate) const NOTHING: Enclosure = Enclosure { private_data: PrivateData::EMPTY, datagram: None };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    stored: Stored,
    /// Neighbours in the channel's list.
    before: Option<Letter>,
    after: Option<Letter>,
    /// The next in the owner's list.
    next: Option<Letter>,
}

/// The slab of events and that of enclosures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    nodes: Slab<Node>,
    enclosures: Slab<Enclosure>,
    of_device: u32,
}

impl Mail {
    /// How many events of the device are on channels' lists; the ones kept for synchronous mode, at most one per id, do
    /// not count.
    pub(crate) fn of_device(&self) -> u32 {
        self.of_device
    }

    /// How many enclosures are stored, of events and of calls.
    pub(crate) fn enclosures_len(&self) -> usize {
        self.enclosures.len()
    }

    /// How many events have an enclosure.
    pub(crate) fn letters_with_enclosure(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.stored.enclosed.is_some()).count()
    }

    pub(crate) fn nodes_len(&self) -> usize {
        self.nodes.len()
    }

    /// `None` if there is nothing to keep.
    #[inline]
    pub(crate) fn keep(&mut self, private_data: &[u8], datagram: Option<Datagram>) -> Option<Enclosed> {
        if private_data.is_empty() && datagram.is_none() {
            return None;
        }
        let enclosure = Enclosure { private_data: PrivateData::copy_of(private_data), datagram };
        Some(Enclosed(Place::new(self.enclosures.insert(enclosure))))
    }

    #[inline]
    pub(crate) fn enclosure(&self, enclosed: Option<Enclosed>) -> &Enclosure {
        enclosed.and_then(|Enclosed(at)| self.enclosures.get(at.index())).unwrap_or(&Enclosure::NOTHING)
    }

    /// Forgets it.
    #[inline]
    pub(crate) fn discard(&mut self, enclosed: Option<Enclosed>) {
        if let Some(Enclosed(at)) = enclosed {
            self.enclosures.try_remove(at.index());
        }
    }

    /// Stores an event on no list.
    #[inline]
    pub(crate) fn store(&mut self, stored: Stored) -> Letter {
        Letter(Place::new(self.nodes.insert(Node { stored, before: None, after: None, next: None })))
    }

    #[inline]
    pub(crate) fn get(&self, letter: Letter) -> &Stored {
        &self.nodes[letter.0.index()].stored
    }

    /// Takes an event that is on no list.
    #[inline]
    pub(crate) fn take(&mut self, letter: Letter) -> Stored {
        self.nodes.remove(letter.0.index()).stored
    }

    #[inline]
    fn node(&mut self, letter: Letter) -> &mut Node {
        &mut self.nodes[letter.0.index()]
    }

    /// Appends to a channel's list.
    #[inline]
    pub(crate) fn append(&mut self, channel: &mut Thread, letter: Letter) {
        self.link(channel, letter);
        self.of_device += u32::from(self.get(letter).of_device());
    }

    /// Takes out of a channel's list, wherever it stands.
    #[inline]
    pub(crate) fn unlink(&mut self, channel: &mut Thread, letter: Letter) {
        self.cut(channel, letter);
        self.of_device -= u32::from(self.get(letter).of_device());
    }

    /// As [`append`](Mail::append), of what is counted already.
    pub(crate) fn link(&mut self, channel: &mut Thread, letter: Letter) {
        let last = channel.ends.map(|(_, tail)| tail);
        let node = self.node(letter);
        (node.before, node.after) = (last, None);
        if let Some(last) = last {
            self.node(last).after = Some(letter);
        }
        channel.ends = Some((channel.head().unwrap_or(letter), letter));
        channel.len += 1;
    }

    /// As [`unlink`](Mail::unlink), of what goes on to be counted.
    pub(crate) fn cut(&mut self, channel: &mut Thread, letter: Letter) {
        let node = self.node(letter);
        let (before, after) = (node.before.take(), node.after.take());
        if let Some(before) = before {
            self.node(before).after = after;
        }
        if let Some(after) = after {
            self.node(after).before = before;
        }
        channel.shrink(letter, before, after);
    }

    /// Appends to an owner's list.
    #[inline]
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
        self.nodes[letter.0.index()].next
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
        owner.shrink(letter, before, after);
    }

    /// The letters of an owner's list, in order.
    pub(crate) fn owned<'a>(&'a self, owner: &Thread) -> impl Iterator<Item = Letter> + use<'a> {
        core::iter::successors(owner.head(), |&letter| self.next_owned(letter))
    }

    /// The letters of a channel's list, in order.
    pub(crate) fn letters<'a>(&'a self, channel: &Thread) -> impl Iterator<Item = Letter> + 'a {
        core::iter::successors(channel.head(), |letter| self.nodes[letter.0.index()].after)
    }
}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        self.nodes.iter().eq(other.nodes.iter())
            && self.enclosures.iter().eq(other.enclosures.iter())
            && self.nodes.vacant_key() == other.nodes.vacant_key()
    }
}
impl Eq for Mail {}

impl Hash for Mail {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for entry in &self.nodes {
            entry.hash(state);
        }
        for entry in &self.enclosures {
            entry.hash(state);
        }
    }
}
