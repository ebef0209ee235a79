//! Requests of the application, and what the initiator sends for itself.

use cmid_mio::proto::datapath::Piece;

use super::{Buffer, BufferOf};
use crate::wire::{Command, Status, Transfer};

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

/// A request of the application, with its data in memory of the type `B`.
#[derive(Debug)]
pub(super) struct Request<B> {
    pub(super) ticket: Ticket,
    pub(super) on: On,
    pub(super) command: Command<B>,
    /// How often it was sent in vain.
    pub(super) failures: u8,
}

impl<P: Piece> Request<Buffer<P>> {
    /// Makes its memory whole, when its command is not on a queue any more. Returns whether data that the target has
    /// sent is lost.
    pub(super) fn restore(&mut self) -> bool {
        self.command.transfer.buffer_mut().is_some_and(Buffer::restore)
    }
}

/// What a command on a queue is for.
#[derive(Debug)]
pub(super) enum Tag<B> {
    /// A step of bringing the controller up.
    Step(Command<B>),
    /// A sign of life.
    KeepAlive(Command<B>),
    /// An asynchronous event request.
    Event(Command<B>),
    /// The log page of an event.
    EventLog(Command<B>),
    /// A request of the application.
    Request(Request<B>),
}

/// A command on a queue of a device.
pub(super) type TagOf<D> = Tag<BufferOf<D>>;

impl<B> Tag<B> {
    pub(super) fn command_mut(&mut self) -> &mut Command<B> {
        match self {
            Tag::Step(command) | Tag::KeepAlive(command) | Tag::Event(command) | Tag::EventLog(command) => command,
            Tag::Request(request) => &mut request.command,
        }
    }
}

/// Why a request has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The controller has refused it.
    #[error("{0}")]
    Status(Status),
    /// It was sent so often in vain: each time the connection was lost, the controller answered with a status that is not
    /// final, or the device kept the data of a read. A write may have been done.
    #[error("this command has no result, and was sent {0} times")]
    Lost(u8),
    /// It has more data than its queue takes, which may be less after a reconnect. It was not sent on this queue. A write that was
    /// outstanding at a loss before may have been done.
    #[error("the command has {len} bytes of data, and the most are {max}")]
    TooLong {
        /// The bytes of its data.
        len: usize,
        /// The most bytes: [`Initiator::transfer_max`](super::Initiator::transfer_max), or 4096 of one of the administrator.
        max: usize,
    },
    /// The controller is gone, and no other attempt is made. A write that was outstanding may have been done.
    #[error("the controller is gone: {0}")]
    GivenUp(String),
}

/// A request that is over. Each request ends once.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<B> {
    /// The request.
    pub ticket: Ticket,
    /// Its command, with its memory: the data that was to be written, or that the controller has sent
    /// ([`Transfer::In`](crate::wire::Transfer::In)). After a failure the bytes of the latter are any.
    pub command: Command<B>,
    /// How it has ended: the dwords 0 and 1 of the completion.
    pub result: Result<u64, Failure>,
}

impl<B> Ended<B> {
    /// Returns the memory of the command, if it has some, or why it has failed.
    ///
    /// # Errors
    /// [`Failure`]. The memory is dropped then.
    pub fn into_data(self) -> Result<Option<B>, Failure> {
        self.result?;
        Ok(match self.command.transfer {
            Transfer::Nothing => None,
            Transfer::Out(buffer) | Transfer::In(buffer) => Some(buffer),
        })
    }
}
