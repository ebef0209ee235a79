//! A call that is to be made, and what its outcome changes.

use core::fmt;

use super::Core;
use crate::call::{Call, Outcome};
use crate::cells::Cell;
use crate::error::Error;
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::request::{Acks, PortSpace, Request};
use crate::time::Time;

/// A request or a part of one, with the device call that is to be made now. It borrows the core, so nothing can come
/// between the decision and the outcome. Make the call, and report its outcome to [`end`](Begun::end). Nothing has changed
/// before; if the value is dropped instead, nothing has happened. A value that follows in a sequence is not to be dropped:
/// the channel that the sequence has opened would stay open, for an id that never comes.
#[must_use = "the call is to be made, and its outcome to be reported"]
pub struct Begun<'c, 'r> {
    core: &'c mut Core,
    part: Part<'r>,
}

/// Private data may be secret.
impl fmt::Debug for Begun<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").field(&self.call()).finish()
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

/// The progress of a request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The request is made. If an event completes it, it has begun.
    Done,
    /// Acks are owed, or a destruction on an iWARP device waits for the answer to a connect; an event reports the end
    /// of the request.
    WhenAcked,
}

/// One call of a request: what the call is made of, and what its outcome changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'r> {
    /// An application opens a channel.
    Open {
        channel: ChannelKey,
        acks: Acks,
    },
    /// A channel is closed: by the application, or after its last id.
    Close {
        channel: ChannelKey,
        asked: bool,
    },
    /// Opens a private channel for an id that comes to it by the next call.
    OpenFor(Arrival),
    Arrive(Arrival),
    /// A request that is one call.
    Request {
        of: RequestOf<'r>,
        cell: Cell,
        /// The kernel's own timeout for a resolve.
        timeout_ms: i32,
    },
    /// A request that makes no call, or waits for acks before its call.
    Uncalled {
        of: RequestOf<'r>,
    },
    /// An accept migrates the id off its listener's channel first.
    MoveToAccept {
        of: RequestOf<'r>,
        cell: Cell,
    },
    Join {
        of: RequestOf<'r>,
    },
    Listen {
        id: IdKey,
        backlog: i32,
    },
    Leave {
        id: IdKey,
        group: GroupKey,
        by_event: bool,
    },
    /// The second disconnect of a teardown; its outcome is ignored.
    DisconnectAgain {
        id: IdKey,
    },
    /// A destruction: the request of the application, or the end of one that has waited.
    Destroy {
        id: IdKey,
        asked: Option<Unacked>,
    },
}

/// A call by which an id comes to a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) id: IdKey,
    pub(super) channel: ChannelKey,
    pub(super) by: By,
}

/// What brings an id to a channel.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// Its creation; in synchronous mode the channel is private.
    Create { port_space: PortSpace, sync: bool },
    /// A listen, which migrates the id to a channel of its own first.
    Listen { backlog: i32 },
    /// A migration; one that has waited for acks is reported by event.
    Migrate { by_event: bool },
}

/// Whether a destroy ignores the acks that are owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacked {
    Refused,
    Waived,
}

/// A request on an id.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOf<'r> {
    pub(super) id: IdKey,
    pub(super) request: &'r Request<'r>,
    pub(super) deadline: Time,
}

impl<'c, 'r> Begun<'c, 'r> {
    pub(super) fn new(core: &'c mut Core, part: Part<'r>) -> Self {
        Begun { core, part }
    }

    /// Returns the call to make. `None` for a request that makes no call, or waits for acks before its call: report
    /// `Ok(())` to [`end`](Begun::end).
    #[must_use]
    #[inline(always)]
    pub fn call(&self) -> Option<Call> {
        self.core.call_of(&self.part)
    }

    /// Returns the private data to send with the call; empty for most calls.
    #[must_use]
    pub fn private_data(&self) -> &'r [u8] {
        self.part.private_data()
    }

    /// Returns the core, which has not changed yet.
    #[must_use]
    pub fn core(&self) -> &Core {
        self.core
    }

    /// Reports the outcome of the call. Returns the next call of the request, or its result. A failure has the state after
    /// it. [`Error::Fault`]: the device could not close a channel or destroy an id that nobody knows any more.
    #[inline(always)]
    pub fn end(mut self, outcome: Outcome) -> Flow<'c, 'r> {
        match self.advance(outcome) {
            Ok(None) => Flow::Next(self),
            Ok(Some(progress)) => Flow::Done(Ok(progress)),
            Err(error) => Flow::Done(Err(error)),
        }
    }

    /// As [`end`](Begun::end). `None` if this is the next call now.
    #[inline(always)]
    pub(crate) fn advance(&mut self, outcome: Outcome) -> Result<Option<Progress>, Error> {
        match self.core.end_of(&self.part, outcome)? {
            Follow::Next(part) => {
                self.part = part;
                Ok(None)
            }
            Follow::Done(progress) => Ok(Some(progress)),
        }
    }

    /// Whether the request makes a call now.
    pub(crate) fn is_called(&self) -> bool {
        !matches!(self.part, Part::Uncalled { .. })
    }
}

impl<'r> Part<'r> {
    /// Returns the private data to send with the call.
    fn private_data(&self) -> &'r [u8] {
        if let Part::Request { of, .. } = self { of.request.private_data() } else { &[] }
    }
}

impl Core {
    /// Applies the outcome of a call.
    #[inline(always)]
    fn end_of<'r>(&mut self, part: &Part<'r>, outcome: Outcome) -> Following<'r> {
        if let (Part::Request { of, cell, .. }, Ok(())) = (part, outcome) {
            self.requested(of, *cell);
            return done();
        }
        self.end_of_other(part, outcome)
    }

    /// As [`end_of`](Core::end_of), for a call that has failed, or is not the whole request.
    fn end_of_other<'r>(&mut self, part: &Part<'r>, outcome: Outcome) -> Following<'r> {
        let following = match *part {
            Part::Open { channel, acks } => self.opened(channel, acks, outcome),
            Part::Close { channel, asked } => self.closed(channel, asked, outcome),
            Part::OpenFor(arrival) => self.opened_for(arrival, outcome),
            Part::Arrive(arrival) => self.arrived(arrival, outcome),
            Part::Request { ref of, .. } => {
                outcome.map_err(|errno| self.request_failed(of, errno))?;
                done()
            }
            Part::Uncalled { ref of } => self.uncalled(of),
            Part::MoveToAccept { of, cell } => self.moved_to_accept(of, cell, outcome),
            Part::Join { ref of } => self.joined(of, outcome),
            Part::Listen { id, backlog } => self.listened(id, backlog, outcome),
            Part::Leave { id, group, by_event } => self.left(id, group, by_event, outcome),
            Part::DisconnectAgain { id } => self.disconnected_again(id),
            Part::Destroy { id, asked } => self.destroyed(id, asked, outcome),
        };
        if let Err(Error::Fault(_)) = following {
            self.counters.faults += 1;
        }
        following
    }

    /// Returns the call of a part. `None`: it makes none.
    #[inline(always)]
    fn call_of(&self, part: &Part<'_>) -> Option<Call> {
        if let Part::Request { of, timeout_ms, .. } = *part {
            return request_call(of.id, of.request, timeout_ms);
        }
        self.call_of_other(part)
    }

    fn call_of_other(&self, part: &Part<'_>) -> Option<Call> {
        Some(match *part {
            Part::Request { .. } | Part::Uncalled { .. } => return None,
            Part::Open { channel, .. } | Part::OpenFor(Arrival { channel, .. }) => Call::OpenChannel { channel },
            Part::Close { channel, .. } => Call::CloseChannel { channel },
            Part::Arrive(Arrival { id, channel, by: By::Create { port_space, .. } }) => {
                Call::CreateId { id, channel, port_space }
            }
            Part::Arrive(Arrival { id, channel, .. }) => self.move_of(id, channel)?,
            Part::MoveToAccept { of, .. } => self.move_of(of.id, self.channel(of.id)?)?,
            Part::Listen { id, backlog } => Call::Listen { id, backlog },
            Part::Join { of: RequestOf { id, request, .. } } => {
                let Request::Join { addr, send_only } = *request else { return None };
                Call::Join { id, group: self.groups.next_key()?, addr, send_only }
            }
            Part::Leave { id, group, .. } => Call::Leave { id, group, addr: self.groups.get(group)?.addr },
            Part::DisconnectAgain { id } => Call::Disconnect { id },
            Part::Destroy { id, .. } => Call::Destroy { id },
        })
    }

    fn move_of(&self, id: IdKey, to: ChannelKey) -> Option<Call> {
        Some(Call::Migrate { id, from: self.device_channel(id)?, to })
    }
}

/// Returns the call of a request that is one call.
fn request_call(id: IdKey, request: &Request<'_>, timeout_ms: i32) -> Option<Call> {
    match *request {
        Request::Bind { addr } => Some(Call::Bind { id, addr }),
        Request::ResolveAddr { src, dst } => Some(Call::ResolveAddr { id, src, dst, timeout_ms }),
        Request::ResolveRoute => Some(Call::ResolveRoute { id, timeout_ms }),
        Request::Connect { param, .. } => Some(Call::Connect { id, param }),
        Request::Accept { param, .. } => Some(Call::Accept { id, param }),
        Request::Reject { reason, .. } => Some(Call::Reject { id, reason }),
        Request::Establish => Some(Call::Establish { id }),
        Request::Disconnect | Request::Teardown => Some(Call::Disconnect { id }),
        Request::Notify => Some(Call::Notify { id }),
        Request::SetOption { option } => Some(Call::SetOption { id, option }),
        Request::SetEce { ece } => Some(Call::SetEce { id, ece }),
        Request::Listen { .. }
        | Request::AttachQp
        | Request::DetachQp
        | Request::GetRequest
        | Request::Join { .. }
        | Request::Leave { .. }
        | Request::Migrate { .. }
        | Request::Destroy
        | Request::DestroyNow => None,
    }
}

/// What follows from the outcome of a call.
pub(super) type Following<'r> = Result<Follow<'r>, Error>;

/// How a request goes on that has not failed.
pub(super) enum Follow<'r> {
    Next(Part<'r>),
    Done(Progress),
}

#[allow(clippy::unnecessary_wraps, reason = "the end of a function that may fail")]
pub(super) const fn done() -> Following<'static> {
    Ok(Follow::Done(Progress::Done))
}
