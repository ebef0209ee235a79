//! The application's account of one id: known events and open requests.

use cmid_proto::IdKey;

use super::invariant::Invariant;
use super::scene::Role;

/// A request that waits for acks and ends by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OpenRequest {
    Migrate,
    Destroy,
}

/// The account of one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub(super) id: IdKey,
    pub(super) role: Role,
    /// Whether the application knows the id.
    pub(super) known: bool,
    /// Events that it has not acked.
    pub(super) owed: u8,
    /// Events that the core has taken and not delivered, in order.
    expected: Vec<Expected>,
    /// Requests that have not ended.
    open: Vec<OpenRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Expected {
    tag: i32,
    /// The event ended a synchronous request; its delivery is optional.
    read: bool,
}

impl Account {
    pub(super) fn new(id: IdKey, role: Role, known: bool) -> Self {
        Account { id, role, known, owed: 0, expected: Vec::new(), open: Vec::new() }
    }

    pub(super) fn begin(&mut self, asked: OpenRequest) {
        self.open.push(asked);
    }

    /// A destroy ends all other requests, and undelivered events are dropped.
    pub(super) fn end_all(&mut self) {
        self.open.clear();
        self.expected.clear();
    }

    /// Records the end of a request.
    pub(super) fn end(&mut self, asked: OpenRequest) -> Result<(), Invariant> {
        let at = self.open.iter().position(|&other| other == asked).ok_or(Invariant::EndsTwice)?;
        self.open.remove(at);
        Ok(())
    }

    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn is_open(&self, asked: OpenRequest) -> bool {
        self.open.contains(&asked)
    }

    pub(super) fn expect(&mut self, tag: i32) {
        self.expected.push(Expected { tag, read: false });
    }

    /// Records that an event has ended a synchronous request.
    pub(super) fn read(&mut self, tag: i32) {
        self.expected.iter_mut().filter(|it| it.tag == tag).for_each(|it| it.read = true);
    }

    /// Records a delivery; checks that it is in order and unique.
    pub(super) fn deliver(&mut self, tag: i32) -> Result<(), Invariant> {
        let at = self.expected.iter().position(|it| it.tag == tag).ok_or(Invariant::Order)?;
        if self.expected.drain(..=at).rev().skip(1).all(|it| it.read) { Ok(()) } else { Err(Invariant::Order) }
    }

    /// The number of events that are undelivered, or can still be read.
    pub(super) fn undelivered(&self) -> usize {
        self.expected.len()
    }

    /// Whether an undelivered event has not been seen.
    pub(super) fn misses_event(&self) -> bool {
        self.expected.iter().any(|it| !it.read)
    }
}
