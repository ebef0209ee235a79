//! An undelivered event.

use core::hash::{Hash, Hasher};

use crate::event::{Event, EventKind, RawEvent, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;

/// An event without an ack token, as it waits for its delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored(Event);

impl Stored {
    /// An event of the device. A connection request belongs to its listener, an event of a membership to the membership.
    pub(crate) fn of(raw: &RawEvent<&[u8]>, listener: Option<IdKey>, group: Option<GroupKey>) -> Self {
        Stored(Event {
            id: raw.id,
            listener,
            kind: EventKind::Cm(raw.kind),
            status: raw.status,
            param: raw.param,
            datagram: raw.datagram,
            group,
            private_data: PrivateData::copy_of(raw.private_data),
            ack_token: None,
        })
    }

    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        Stored(Event {
            id,
            listener: None,
            kind,
            status,
            param: ReceivedParam::default(),
            datagram: None,
            group: None,
            private_data: PrivateData::empty(),
            ack_token: None,
        })
    }

    /// An event of a membership that the core makes itself.
    pub(crate) fn of_group(mut self, group: GroupKey) -> Self {
        self.0.group = Some(group);
        self
    }

    /// The same event of another id, which has no memberships.
    pub(crate) fn rekeyed(mut self, id: IdKey) -> Self {
        (self.0.id, self.0.group) = (id, None);
        self
    }

    /// The id that the event belongs to: of a connection request the listener. The event moves with that id, and counts
    /// among its owed acks.
    pub(crate) fn owner(&self) -> IdKey {
        self.0.listener.unwrap_or(self.0.id)
    }

    /// Whether the event is a connection request. The backlog of the listener limits their number.
    pub(crate) fn is_request(&self) -> bool {
        self.0.listener.is_some()
    }

    /// Whether the device has reported the event. Such an event needs an ack and counts against the limit.
    pub(crate) fn of_device(&self) -> bool {
        matches!(self.0.kind, EventKind::Cm(_))
    }

    /// Whether the event counts against the limit of one channel.
    pub(crate) fn of_channel(&self) -> bool {
        self.of_device() && !self.is_request()
    }

    pub(crate) fn event(&self) -> &Event {
        &self.0
    }

    pub(crate) fn into_event(self) -> Event {
        self.0
    }
}

// An event with an ack token cannot be cloned; a stored one has none.
impl Clone for Stored {
    fn clone(&self) -> Self {
        let Event { id, listener, kind, status, param, datagram, group, ref private_data, ack_token: _ } = self.0;
        let private_data = private_data.clone();
        Stored(Event { id, listener, kind, status, param, datagram, group, private_data, ack_token: None })
    }
}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Event { id, listener, kind, status, param, datagram, group, ref private_data, ack_token: _ } = self.0;
        (id, listener, kind, status, param, datagram, group, private_data).hash(state);
    }
}
