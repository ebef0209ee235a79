//! A call that is to be made, and what its outcome changes.

use core::fmt;

use super::Core;
use crate::call::{Call, Outcome};
use crate::cells::Cell;
use crate::error::{Error, Failure, Fault};
use crate::key::IdKey;
use crate::request::{Acks, PortSpace, Request};
use crate::time::Time;

/// A device call that is to be made now. It borrows the core, so nothing can come between the decision and the outcome.
/// Make the call, and report its outcome to [`end`](Begun::end). Nothing has changed before; if the value is dropped
/// instead, nothing has happened.
#[must_use = "the call is to be made, and its outcome to be reported"]
pub struct Begun<'c, 'r> {
    core: &'c mut Core,
    call: Call,
    private_data: &'r [u8],
    then: Then<'r>,
}

/// Private data may be secret.
impl fmt::Debug for Begun<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").field(&self.call).finish()
    }
}

/// How a request goes on.
#[derive(Debug)]
#[must_use]
pub enum Flow<'c, 'r> {
    /// This call is to be made.
    Next(Begun<'c, 'r>),
    /// The request has ended, or goes on without a call: until an event, an ack or its deadline.
    Done(Result<Progress, Error>),
}

impl<'c, 'r> From<Begun<'c, 'r>> for Flow<'c, 'r> {
    fn from(begun: Begun<'c, 'r>) -> Self {
        Flow::Next(begun)
    }
}

/// A call that follows, if there is one.
impl<'c, 'r> From<Option<Begun<'c, 'r>>> for Flow<'c, 'r> {
    fn from(begun: Option<Begun<'c, 'r>>) -> Self {
        begun.map_or(Flow::Done(Ok(Progress::Done)), Flow::Next)
    }
}

/// The progress of a request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The request is made. If an event completes it, it has begun.
    Done,
    /// Acks are owed, or a destruction on an iWARP device waits for the answer to a connect; an event reports the end
    /// of the request.
    WhenAcked,
}

/// What a call is part of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then<'r> {
    /// An application opens a channel.
    Open(Acks),
    /// A channel is closed: by the application, or after its last id.
    Close {
        asked: bool,
    },
    /// Opens the private channel of a new synchronous id.
    OpenToCreate(IdKey, PortSpace),
    Create {
        sync: bool,
    },
    /// A request that is one call.
    Request(RequestOf<'r>),
    /// An accept migrates the id off its listener's channel first.
    MoveToAccept(RequestOf<'r>),
    /// A listen opens the id's own channel, migrates the id to it, and listens.
    OpenToListen {
        id: IdKey,
        backlog: i32,
    },
    MoveToListen {
        backlog: i32,
    },
    Listen {
        backlog: i32,
    },
    /// A migration to synchronous mode opens the private channel.
    OpenToMigrate {
        id: IdKey,
        by_event: bool,
    },
    Migrate {
        by_event: bool,
    },
    Join {
        deadline: Time,
    },
    Leave {
        by_event: bool,
    },
    /// The second disconnect of a teardown; its outcome is ignored.
    Answer,
    /// A destruction: the request of the application, or the end of one that has waited.
    Destroy {
        asked: Option<Unacked>,
    },
}

/// Whether a destroy ignores the acks that are owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacked {
    Refused,
    Waived,
}

/// A request that is one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOf<'r> {
    pub(super) request: &'r Request<'r>,
    pub(super) cell: Cell,
    pub(super) deadline: Time,
}

impl<'c, 'r> Begun<'c, 'r> {
    #[inline(always)]
    pub(super) fn new(core: &'c mut Core, call: Call, private_data: &'r [u8], then: Then<'r>) -> Self {
        Begun { core, call, private_data, then }
    }

    /// Returns the call to make.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the private data to send with the call; empty for most calls.
    #[must_use]
    pub fn private_data(&self) -> &'r [u8] {
        self.private_data
    }

    /// Returns the core, which has not changed yet.
    #[must_use]
    pub fn core(&self) -> &Core {
        self.core
    }

    /// Reports the outcome of the call. Returns the next call of the request, or its result. A failure has the state after
    /// it. [`Error::Fault`]: the device could not close a channel or destroy an id that nobody knows any more.
    #[inline(always)]
    pub fn end(self, outcome: Outcome) -> Flow<'c, 'r> {
        let Begun { core, call, private_data, then } = self;
        if let (Then::Request(of), Ok(()), Some(key)) = (then, outcome, call.id()) {
            core.requested(key, &of);
            return Flow::Done(Ok(Progress::Done));
        }
        Begun { core, call, private_data, then }.end_of_sequence(outcome)
    }

    #[inline(never)]
    fn end_of_sequence(self, outcome: Outcome) -> Flow<'c, 'r> {
        let Begun { core, call, private_data, then } = self;
        let following = match (call, then) {
            (Call::OpenChannel { channel }, _) => core.opened(channel, then, outcome),
            (Call::CloseChannel { channel }, Then::Close { asked }) => core.closed(channel, asked, outcome),
            (Call::CreateId { id, channel, port_space }, Then::Create { sync }) => {
                core.created(id, channel, port_space, sync, outcome)
            }
            (_, Then::Request(of)) => call.id().map_or(DONE, |id| core.request_ended(id, &of, outcome)),
            (Call::Migrate { id, to, .. }, Then::MoveToAccept(of)) => core.moved_to_accept(id, to, of, outcome),
            (Call::Migrate { id, to, .. }, Then::MoveToListen { backlog }) => {
                core.moved_to_listen(id, to, backlog, outcome)
            }
            (Call::Migrate { id, to, .. }, Then::Migrate { by_event }) => core.migrated(id, to, by_event, outcome),
            (Call::Listen { id, .. }, Then::Listen { backlog }) => core.listened(id, backlog, outcome),
            (Call::Join { id, group, addr, .. }, Then::Join { deadline }) => {
                core.joined(id, group, addr, deadline, outcome)
            }
            (Call::Leave { id, group, .. }, Then::Leave { by_event }) => core.left(id, group, by_event, outcome),
            (Call::Disconnect { id }, Then::Answer) => core.answered(id),
            (Call::Destroy { id }, Then::Destroy { asked }) => core.destroyed(id, asked, outcome),
            // Each call is made with its own continuation.
            _ => DONE,
        };
        match following {
            Following::Call(call, then) => {
                let private_data = if let Then::Request(of) = then { of.request.private_data() } else { private_data };
                Flow::Next(Begun { core, call, private_data, then })
            }
            Following::Done(result) => {
                if let Err(Error::Fault(_)) = result {
                    core.counters.faults += 1;
                }
                Flow::Done(result)
            }
        }
    }
}

/// What follows from the outcome of a call.
pub(super) enum Following<'r> {
    Call(Call, Then<'r>),
    Done(Result<Progress, Error>),
}

pub(super) const DONE: Following<'static> = Following::Done(Ok(Progress::Done));

impl From<Failure> for Following<'_> {
    fn from(failure: Failure) -> Self {
        Following::Done(Err(Error::Failed(failure)))
    }
}

impl From<Fault> for Following<'_> {
    fn from(fault: Fault) -> Self {
        Following::Done(Err(Error::Fault(fault)))
    }
}
