//! The data that the core stores for one event channel.

use core::num::NonZeroU64;

use crate::arena::Tenant;
use crate::key::IdKey;
use crate::pending_events::Queue;
use crate::request::Acks;

/// One event channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel {
    pub(crate) acks: Acks,
    /// The channel of an id in synchronous mode or of a listener: closed with its last id.
    pub(crate) private: bool,
    pub(crate) phase: Phase,
    /// The call that opens or closes it, unless that call is part of a request on an id.
    pub(crate) call: Option<NonZeroU64>,
    /// Counts the ids that use this channel: at the device, for delivery, or as the target of a pending migration.
    pub(crate) ids: u32,
    /// The id that listens, has listened or has tried to listen on this channel. It may have been destroyed.
    pub(crate) listener: Option<IdKey>,
    /// Undelivered events of all its ids, in order.
    pub(crate) pending: Queue,
    /// The application has paused the channel.
    pub(crate) paused: bool,
    /// Reads that failed since the last event.
    pub(crate) failures: u8,
    /// Whether the channel is in the queue of channels to read.
    pub(crate) readable: bool,
    /// Whether the channel is on the list of channels to read once there is room.
    pub(crate) parked: bool,
}

impl Tenant for Channel {}

/// The phase of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Opening,
    Open,
    Closing,
    /// The device could not open it, and ids are on it. It is removed with its last id.
    Broken,
}

impl Channel {
    pub(crate) fn new(acks: Acks, private: bool) -> Self {
        Channel {
            acks,
            private,
            phase: Phase::Opening,
            call: None,
            ids: 0,
            listener: None,
            pending: Queue::EMPTY,
            paused: false,
            failures: 0,
            readable: false,
            parked: false,
        }
    }

    /// Whether the channel has failed: too many consecutive reads failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures >= READ_FAILURES_MAX
    }

    /// Whether events of the channel are to be read if there is room for them.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.phase == Phase::Open && !self.paused && !self.has_failed()
    }
}

/// The number of consecutive failed reads of a channel after which it has failed
/// ([`Core::handle_unreadable`](crate::Core::handle_unreadable)).
pub const READ_FAILURES_MAX: u8 = 32;
