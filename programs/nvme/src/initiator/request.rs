//! Requests of the application, and what the initiator sends for itself.

use crate::wire::{Command, Status};

/// The number of a request, by which its end is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// Which queues a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The admin queue.
    Admin,
    /// The I/O queues, one after the other.
    Io,
}

/// A request of the application.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) ticket: Ticket,
    pub(super) on: On,
    pub(super) command: Command,
    /// How often it was sent in vain.
    pub(super) failures: u8,
}

/// What a command on a queue is for.
#[derive(Debug)]
pub(super) enum Tag {
    /// A step of bringing the controller up.
    Step(Command),
    /// A sign of life.
    KeepAlive(Command),
    /// An asynchronous event request.
    Event(Command),
    /// The log page of an event.
    EventLog(Command),
    /// A request of the application.
    Request(Request),
}

impl Tag {
    pub(super) fn command(&self) -> &Command {
        match self {
            Tag::Step(command) | Tag::KeepAlive(command) | Tag::Event(command) | Tag::EventLog(command) => command,
            Tag::Request(request) => &request.command,
        }
    }

    pub(super) fn command_mut(&mut self) -> &mut Command {
        match self {
            Tag::Step(command) | Tag::KeepAlive(command) | Tag::Event(command) | Tag::EventLog(command) => command,
            Tag::Request(request) => &mut request.command,
        }
    }
}

/// What the controller has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The dwords 0 and 1 of the completion.
    pub result: u64,
    /// The buffer of the command ([`Transfer::In`](crate::wire::Transfer::In)), with what the controller has sent.
    pub data: Vec<u8>,
}

/// Why a request has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The controller has refused it.
    #[error("{0}")]
    Status(Status),
    /// It was outstanding each time that the connection was lost. A write may have been done.
    #[error("the connection was lost {0} times during this command")]
    Lost(u8),
    /// The controller is gone, and no other attempt is made. A write that was outstanding may have been done.
    #[error("the controller is gone: {0}")]
    GivenUp(String),
}

/// A request that is over. Each request ends once.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// The request.
    pub ticket: Ticket,
    /// Its command, with the data that was to be written.
    pub command: Command,
    /// How it has ended.
    pub result: Result<Answer, Failure>,
}
