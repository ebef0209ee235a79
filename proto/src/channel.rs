//! The data that the core stores for one event channel.

use alloc::collections::VecDeque;

use crate::key::IdKey;
use crate::limits::Limits;
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::stored::Stored;

/// One event channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel {
    pub(crate) acks: Acks,
    /// The channel of an id in synchronous mode or of a listener: closed with its last id.
    pub(crate) private: bool,
    /// Whether the call that closes it is due.
    pub(crate) closing: bool,
    /// Counts the ids that use this channel: at the device, for delivery, or as the target of a migration.
    pub(crate) ids: u32,
    /// The id that listens, has listened or has tried to listen on this channel. It may have been destroyed.
    pub(crate) listener: Option<IdKey>,
    /// Undelivered events of all its ids, in order.
    pub(crate) events: VecDeque<Stored>,
    /// The number of its events that count against the limit of one channel.
    pub(crate) counted: u32,
    /// The last request of the id in synchronous mode that the channel is private to, and the event that ended it; readable
    /// until the next request.
    pub(crate) ended: Option<(RequestKind, Stored)>,
    /// The application has paused the channel.
    pub(crate) paused: bool,
    /// Reads that failed since the last event.
    pub(crate) failures: u8,
    /// The place in the queue of channels to read.
    pub(crate) place: Place,
    /// Whether the channel is on the list of channels to read once there is room.
    pub(crate) parked: bool,
}

/// The place of a channel in the queue of channels to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    None,
    /// It is not to be read any more, and is skipped when it is the first one.
    Skipped,
    ToRead,
}

impl Channel {
    pub(crate) fn new(acks: Acks, private: bool) -> Self {
        Channel {
            acks,
            private,
            closing: false,
            ids: 0,
            listener: None,
            events: VecDeque::new(),
            counted: 0,
            ended: None,
            paused: false,
            failures: 0,
            place: Place::None,
            parked: false,
        }
    }

    /// Whether undelivered events of the channel are a reason to run the application: it takes events of this channel now.
    pub(crate) fn is_taken_from(&self) -> bool {
        !self.private && !self.paused
    }

    /// Whether the channel has failed: too many consecutive reads failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures >= Limits::READ_FAILURES_MAX
    }

    /// Whether events of the channel are to be read if there is room for them.
    pub(crate) fn is_read(&self) -> bool {
        !self.closing && !self.paused && !self.has_failed()
    }
}
