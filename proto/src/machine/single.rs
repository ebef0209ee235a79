//! The only undelivered event of a channel, stored outside the lists.

use crate::cm_event::CmEvent;
use crate::event::{AckToken, Event, EventKind, ReceivedParam};
use crate::key::{ChannelKey, IdKey};
use crate::private_data::PrivateData;
use crate::request::Acks;
use crate::slab_index::PrivateDataRef;
use crate::stored::Stored;

/// An undelivered event that is on no list: the only one of its channel. It came from the device and belongs to no
/// group. When the event came, its id was plain, or, for a connection request, nothing was under way for the listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    pub(super) on: ChannelKey,
    /// The ack mode of the channel.
    pub(super) acks: Acks,
    pub(super) id: IdKey,
    pub(super) kind: CmEvent,
    pub(super) status: i32,
    pub(super) param: ReceivedParam,
    /// A connection request always has private data.
    pub(super) private_data_ref: Option<PrivateDataRef>,
}

impl Single {
    #[inline(always)]
    pub(super) fn bare(&self, ack_token: Option<AckToken>) -> Event {
        Event {
            id: self.id,
            listener: None,
            kind: EventKind::Cm(self.kind),
            status: self.status,
            param: self.param,
            datagram: None,
            group: None,
            private_data: PrivateData::empty(),
            ack_token,
        }
    }

    /// Returns the event as it is stored on the lists. `listener` is that of a connection request.
    pub(super) fn stored(&self, listener: Option<IdKey>) -> Stored {
        let stored = Stored::of(self.id, EventKind::Cm(self.kind), self.status, self.param, self.private_data_ref);
        match listener {
            Some(listener) => stored.with_listener(listener),
            None => stored,
        }
    }
}
