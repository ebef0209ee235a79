//! What the application knows of one id, and what it still has to hear.

use cmid_proto::{Call, IdKey};

use super::law::Law;
use super::scene::Role;

/// A request that has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asked {
    Create,
    Call,
    Migrate,
    Destroy,
}

/// The books on one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub(super) id: IdKey,
    pub(super) role: Role,
    /// Whether the application has heard of it.
    pub(super) known: bool,
    /// Events that it has not acked.
    pub(super) owed: u8,
    /// Events that the core has taken and not delivered, in order.
    expected: Vec<Expected>,
    /// Requests that have not ended.
    open: Vec<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Expected {
    tag: i32,
    /// It ended a synchronous request, and may be delivered, but need not.
    read: bool,
}

impl Account {
    pub(super) fn new(id: IdKey, role: Role, known: bool) -> Self {
        Account { id, role, known, owed: 0, expected: Vec::new(), open: Vec::new() }
    }

    pub(super) fn begin(&mut self, asked: Asked) {
        if asked == Asked::Destroy {
            // All other requests end with it, and what is undelivered goes with the id.
            self.open.clear();
            self.expected.clear();
        }
        self.open.push(asked);
    }

    /// A request has ended; `gone` if its id has.
    pub(super) fn end(&mut self, asked: Asked, gone: bool) -> Result<(), Law> {
        let ended = take(&mut self.open, asked)
            // A destroy ends with the creation that it overtook, if that fails.
            || (gone && take(&mut self.open, Asked::Destroy));
        if ended { Ok(()) } else { Err(Law::EndsTwice) }
    }

    /// The request that ended with a call.
    pub(super) fn asked_by(&self, call: &Call) -> Asked {
        let has = |asked| self.open.contains(&asked);
        let opens = matches!(call, Call::OpenChannel { .. });
        if matches!(call, Call::CreateId { .. }) || (opens && has(Asked::Create)) {
            Asked::Create
        } else if matches!(call, Call::Destroy { .. }) {
            Asked::Destroy
        } else if (opens || matches!(call, Call::Migrate { .. })) && has(Asked::Migrate) {
            Asked::Migrate
        } else {
            // Also a listen, which opens a channel and moves the id there.
            Asked::Call
        }
    }

    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn is_open(&self, asked: Asked) -> bool {
        self.open.contains(&asked)
    }

    pub(super) fn expect(&mut self, tag: i32) {
        self.expected.push(Expected { tag, read: false });
    }

    /// It has ended a synchronous request.
    pub(super) fn read(&mut self, tag: i32) {
        self.expected.iter_mut().filter(|it| it.tag == tag).for_each(|it| it.read = true);
    }

    /// It is delivered: in order, and once.
    pub(super) fn deliver(&mut self, tag: i32) -> Result<(), Law> {
        let at = self.expected.iter().position(|it| it.tag == tag).ok_or(Law::Order)?;
        if self.expected.drain(..=at).rev().skip(1).all(|it| it.read) { Ok(()) } else { Err(Law::Order) }
    }

    /// How many events are to be delivered, or can still be read.
    pub(super) fn undelivered(&self) -> usize {
        self.expected.len()
    }

    /// Whether an event is to be delivered and nobody has seen it.
    pub(super) fn misses_event(&self) -> bool {
        self.expected.iter().any(|it| !it.read)
    }
}

fn take(list: &mut Vec<Asked>, asked: Asked) -> bool {
    list.iter().position(|&other| other == asked).map(|at| list.remove(at)).is_some()
}
