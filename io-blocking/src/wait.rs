//! What a wait is for, and why it ended.

use cmid_proto::{Event, IdKey};

/// The reason why [`Connection::wait_for`](crate::Connection::wait_for) returned.
#[derive(Debug)]
pub enum Ready {
    /// The caller's descriptor is readable.
    Descriptor,
    /// An event.
    Event(Box<Event>),
}

/// What a wait is for. Only the first ends for events on channels that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// An event on any channel.
    AnyEvent,
    /// An event on the channel of an id.
    EventOf(IdKey),
    /// The end of a synchronous request.
    End,
}

/// The reason why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The caller's descriptor.
    Descriptor,
    Channels,
    Time,
    Signal,
}
