//! Undelivered events. Each is on two lists: its channel's (the order of delivery) and its owner's (the events that
//! move with the id).
//!
//! Both lists run through one slab, so that moving the k events of an id takes k steps.

use core::hash::{Hash, Hasher};

use slab::Slab;

use crate::event::{Datagram, Event};
use crate::private_data_slab::{PrivateDataSlab, StoredPrivateData};
use crate::slab_index::EventRef;
use crate::slab_index::PrivateDataRef;
use crate::slab_index::SlabIndex;
use crate::stored::Stored;

/// A list through the slab: its first and last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventList {
    first: Option<EventRef>,
    last: Option<EventRef>,
}

impl EventList {
    pub(crate) const EMPTY: EventList = EventList { first: None, last: None };

    pub(crate) fn head(&self) -> Option<EventRef> {
        self.first
    }

    pub(crate) fn tail(&self) -> Option<EventRef> {
        self.last
    }
}

/// A channel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    thread: EventList,
    /// The number of its events that count against the limit of one channel.
    counted: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue = Queue { thread: EventList::EMPTY, counted: 0 };

    #[inline]
    pub(crate) fn head(&self) -> Option<EventRef> {
        self.thread.first
    }

    pub(crate) fn tail(&self) -> Option<EventRef> {
        self.thread.last
    }

    /// The number of its events that count against the limit of one channel.
    #[inline]
    pub(crate) fn counted(&self) -> u32 {
        self.counted
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    stored: Stored,
    /// The previous and the next event in the channel's list.
    before: Option<EventRef>,
    after: Option<EventRef>,
    /// The next in the owner's list.
    next: Option<EventRef>,
}

/// A range of events that are adjacent on both of their lists.
struct Run {
    last: EventRef,
    /// The number of events in the range that count against the limit of their channel.
    counted: u32,
}

/// The slab of events and that of private data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingEvents {
    nodes: Slab<Node>,
    private_data: PrivateDataSlab,
    of_device: u32,
}

impl PendingEvents {
    /// The number of events of the device on the channels' lists. Events stored for synchronous mode, at most one per
    /// id, do not count.
    pub(crate) fn of_device(&self) -> u32 {
        self.of_device
    }

    /// The number of stored private data, of events and of calls.
    #[inline]
    pub(crate) fn private_data_len(&self) -> usize {
        self.private_data.len()
    }

    /// The number of events with private data.
    pub(crate) fn events_with_private_data(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.stored.private_data_ref.is_some()).count()
    }

    /// Whether any event is stored.
    #[inline]
    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    pub(crate) fn nodes_len(&self) -> usize {
        self.nodes.len()
    }

    /// Stores private data and a datagram address; `None` if there is neither.
    #[inline]
    pub(crate) fn keep(&mut self, private_data: &[u8], datagram: Option<Datagram>) -> Option<PrivateDataRef> {
        if private_data.is_empty() && datagram.is_none() {
            None
        } else {
            Some(self.insert_private_data(private_data, datagram))
        }
    }

    #[inline(never)]
    fn insert_private_data(&mut self, private_data: &[u8], datagram: Option<Datagram>) -> PrivateDataRef {
        self.private_data.insert(private_data, datagram)
    }

    /// Returns the private data; empty if there is none.
    #[inline]
    pub(crate) fn private_data_of(&self, private_data_ref: Option<PrivateDataRef>) -> Option<&StoredPrivateData> {
        self.private_data.get(private_data_ref?)
    }

    /// Completes an event with its private data.
    #[inline]
    pub(crate) fn fill_private_data(&self, private_data_ref: Option<PrivateDataRef>, event: &mut Event) {
        if let Some(private_data_of) = self.private_data_of(private_data_ref) {
            event.private_data = private_data_of.private_data.clone();
            event.datagram = private_data_of.datagram;
        }
    }

    /// Frees the private data.
    #[inline]
    pub(crate) fn discard(&mut self, private_data_ref: Option<PrivateDataRef>) {
        if let Some(at) = private_data_ref {
            self.private_data.remove(at);
        }
    }

    /// Stores an event on no list.
    #[inline]
    pub(crate) fn store(&mut self, stored: Stored) -> EventRef {
        EventRef(SlabIndex::new(self.nodes.insert(Node { stored, before: None, after: None, next: None })))
    }

    /// Stores an event at the end of a channel's list, and of its owner's.
    #[inline]
    pub(crate) fn push(
        &mut self,
        stored: Stored,
        channel: Option<&mut Queue>,
        owner: Option<&mut EventList>,
    ) -> EventRef {
        self.of_device += u32::from(stored.of_device() && channel.is_some());
        let event_ref = EventRef(SlabIndex::new(self.nodes.vacant_key()));
        let before = channel.and_then(|channel| {
            channel.counted += u32::from(stored.of_channel());
            self.end_with(channel, event_ref)
        });
        if let Some(owner) = owner {
            self.link_owner(owner, event_ref);
        }
        self.nodes.insert(Node { stored, before, after: None, next: None });
        event_ref
    }

    /// Appends an event to a channel's list and returns the event before it.
    #[inline]
    fn end_with(&mut self, channel: &mut Queue, event_ref: EventRef) -> Option<EventRef> {
        let before = channel.thread.last.replace(event_ref);
        match before {
            Some(last) => self.node(last).after = Some(event_ref),
            None => channel.thread.first = Some(event_ref),
        }
        before
    }

    #[inline]
    pub(crate) fn get(&self, event_ref: EventRef) -> &Stored {
        &self.nodes[event_ref.0.index()].stored
    }

    /// Removes an event that is on no list.
    #[inline]
    pub(crate) fn take(&mut self, event_ref: EventRef) -> Stored {
        self.nodes.remove(event_ref.0.index()).stored
    }

    #[inline]
    fn node(&mut self, event_ref: EventRef) -> &mut Node {
        &mut self.nodes[event_ref.0.index()]
    }

    /// Appends an event of the core to a channel's list: it does not count against the limit.
    pub(crate) fn append(&mut self, channel: &mut Queue, event_ref: EventRef) {
        self.node(event_ref).before = self.end_with(channel, event_ref);
    }

    /// Unlinks an event from its channel's list, wherever it is.
    #[inline]
    pub(crate) fn unlink(&mut self, channel: &mut Queue, event_ref: EventRef) {
        let node = self.node(event_ref);
        let neighbours = (node.before.take(), node.after.take());
        let (of_device, of_channel) = (node.stored.of_device(), node.stored.of_channel());
        self.close_gap(channel, neighbours);
        self.of_device -= u32::from(of_device);
        channel.counted -= u32::from(of_channel);
    }

    #[inline]
    fn close_gap(&mut self, channel: &mut Queue, (before, after): (Option<EventRef>, Option<EventRef>)) {
        match before {
            Some(before) => self.node(before).after = after,
            None => channel.thread.first = after,
        }
        match after {
            Some(after) => self.node(after).before = before,
            None => channel.thread.last = before,
        }
    }

    /// Unlinks an owner's events, from this one on, from their channel's list. Returns them as a list.
    pub(crate) fn extract(&mut self, channel: &mut Queue, first: Option<EventRef>) -> Queue {
        let mut list = Queue::EMPTY;
        let mut at = first;
        while let Some(begin) = at {
            let (run, next) = self.run_from(begin);
            let before = core::mem::replace(&mut self.node(begin).before, list.thread.last);
            let after = self.node(run.last).after.take();
            self.close_gap(channel, (before, after));
            match list.thread.last.replace(run.last) {
                Some(last) => self.node(last).after = Some(begin),
                None => list.thread.first = Some(begin),
            }
            list.counted += run.counted;
            at = next;
        }
        channel.counted -= list.counted;
        list
    }

    /// Returns the events of an owner that are adjacent on the channel too, from this one on, and the owner's next
    /// event.
    #[inline]
    fn run_from(&self, begin: EventRef) -> (Run, Option<EventRef>) {
        let mut run = Run { last: begin, counted: 0 };
        let mut node = &self.nodes[begin.0.index()];
        loop {
            run.counted += u32::from(node.stored.of_channel());
            let Some(next) = node.next else { return (run, None) };
            if node.after != Some(next) {
                return (run, Some(next));
            }
            run.last = next;
            node = &self.nodes[next.0.index()];
        }
    }

    /// Appends a list to a channel's.
    pub(crate) fn splice(&mut self, channel: &mut Queue, list: Queue) {
        let (Some(first), Some(_)) = (list.thread.first, list.thread.last) else { return };
        self.node(first).before = channel.thread.last;
        match channel.thread.last {
            Some(last) => self.node(last).after = Some(first),
            None => channel.thread.first = Some(first),
        }
        channel.thread.last = list.thread.last;
        channel.counted += list.counted;
    }

    /// Appends to an owner's list.
    #[inline]
    pub(crate) fn link_owner(&mut self, owner: &mut EventList, event_ref: EventRef) {
        match owner.last.replace(event_ref) {
            Some(last) => self.node(last).next = Some(event_ref),
            None => owner.first = Some(event_ref),
        }
    }

    /// Puts at the front of an owner's list.
    pub(crate) fn link_owner_first(&mut self, owner: &mut EventList, event_ref: EventRef) {
        self.node(event_ref).next = owner.first.replace(event_ref);
        owner.last = owner.last.or(Some(event_ref));
    }

    /// Returns the next event of the same owner.
    pub(crate) fn next_of_owner(&self, event_ref: EventRef) -> Option<EventRef> {
        self.nodes[event_ref.0.index()].next
    }

    /// Unlinks an event from its owner's list. It is the first one, unless it ended a synchronous request or belongs
    /// to a group that is left.
    #[inline]
    pub(crate) fn unlink_owner(&mut self, owner: &mut EventList, event_ref: EventRef) {
        let next = self.node(event_ref).next.take();
        let before = if owner.first == Some(event_ref) { None } else { self.previous_of_owner(owner, event_ref) };
        match before {
            Some(before) => self.node(before).next = next,
            None => owner.first = next,
        }
        if next.is_none() {
            owner.last = before;
        }
    }

    /// Returns the event before this one in its owner's list; `None` only for the first.
    #[cold]
    fn previous_of_owner(&self, owner: &EventList, event_ref: EventRef) -> Option<EventRef> {
        self.events_of_owner(owner).find(|&before| self.next_of_owner(before) == Some(event_ref))
    }

    /// Returns the events of an owner's list, in order.
    pub(crate) fn events_of_owner<'a>(&'a self, owner: &EventList) -> impl Iterator<Item = EventRef> + use<'a> {
        core::iter::successors(owner.head(), |&event_ref| self.next_of_owner(event_ref))
    }

    /// Returns the event before this one in its channel's list: for checks.
    pub(crate) fn before(&self, event_ref: EventRef) -> Option<EventRef> {
        self.nodes[event_ref.0.index()].before
    }

    /// Returns the events of a channel's list, in order.
    pub(crate) fn events_of_channel<'a>(&'a self, channel: &Queue) -> impl Iterator<Item = EventRef> + 'a {
        core::iter::successors(channel.head(), |event_ref| self.nodes[event_ref.0.index()].after)
    }
}

impl PartialEq for PendingEvents {
    fn eq(&self, other: &Self) -> bool {
        self.nodes.iter().eq(other.nodes.iter())
            && self.private_data == other.private_data
            && self.nodes.vacant_key() == other.nodes.vacant_key()
    }
}
impl Eq for PendingEvents {}

impl Hash for PendingEvents {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for entry in &self.nodes {
            entry.hash(state);
        }
        self.private_data.hash(state);
    }
}
