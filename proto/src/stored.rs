//! An undelivered event as the core stores it.

use core::num::NonZeroU64;

use crate::cm_event::CmEvent;
use crate::event::{AckToken, Event, EventKind, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;
use crate::slab_index::PrivateDataRef;

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) id: IdKey,
    /// The bits of the key of [`listener`](Stored::listener) or [`group`](Stored::group): no event has both.
    other: Option<NonZeroU64>,
    pub(crate) kind: EventKind,
    pub(crate) status: i32,
    pub(crate) param: ReceivedParam,
    pub(crate) private_data_ref: Option<PrivateDataRef>,
}

impl Stored {
    /// An event without a listener or a group.
    #[inline]
    pub(crate) fn of(
        id: IdKey,
        kind: EventKind,
        status: i32,
        param: ReceivedParam,
        private_data_ref: Option<PrivateDataRef>,
    ) -> Self {
        Stored { id, other: None, kind, status, param, private_data_ref }
    }

    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        Stored::of(id, kind, status, ReceivedParam::default(), None)
    }

    /// A CONNECT_REQUEST of this listener.
    #[inline]
    pub(crate) fn with_listener(self, listener: IdKey) -> Self {
        Stored { other: NonZeroU64::new(listener.to_bits()), ..self }
    }

    /// An event of a multicast membership.
    #[inline]
    pub(crate) fn of_group(self, group: GroupKey) -> Self {
        Stored { other: NonZeroU64::new(group.to_bits()), ..self }
    }

    /// The same event with another id as its owner.
    pub(crate) fn rekeyed(self, id: IdKey, private_data_ref: Option<PrivateDataRef>) -> Self {
        Stored { id, other: None, private_data_ref, ..self }
    }

    /// For CONNECT_REQUEST: the listener. It owns the event: the event moves with the listener and counts among its
    /// owed acks.
    #[inline]
    pub(crate) fn listener(&self) -> Option<IdKey> {
        let bits = self.other.filter(|_| self.kind == EventKind::Cm(CmEvent::ConnectRequest))?;
        IdKey::from_bits(bits.get())
    }

    /// For events of a multicast membership: the membership.
    #[inline]
    pub(crate) fn group(&self) -> Option<GroupKey> {
        let bits = self.other.filter(|_| self.kind != EventKind::Cm(CmEvent::ConnectRequest))?;
        GroupKey::from_bits(bits.get())
    }

    #[inline]
    pub(crate) fn owner(&self) -> IdKey {
        self.listener().unwrap_or(self.id)
    }

    /// The event for the application, without its private data.
    #[inline]
    pub(crate) fn bare(&self, ack_token: Option<AckToken>) -> Event {
        Event {
            id: self.id,
            listener: self.listener(),
            kind: self.kind,
            status: self.status,
            param: self.param,
            datagram: None,
            group: self.group(),
            private_data: PrivateData::empty(),
            ack_token,
        }
    }

    /// Whether the device reported the event. Such an event needs an ack and counts against the limit.
    pub(crate) fn of_device(&self) -> bool {
        match self.kind {
            EventKind::Cm(_) => true,
            EventKind::Migrated | EventKind::Destroyed | EventKind::Left | EventKind::DeadlinePassed(_) => false,
        }
    }

    /// Whether the event is a connection request. The backlog of the listener limits their number.
    pub(crate) fn is_request(&self) -> bool {
        self.listener().is_some()
    }

    /// Whether the event counts against the limit of one channel.
    pub(crate) fn of_channel(&self) -> bool {
        self.of_device() && !self.is_request()
    }
}
