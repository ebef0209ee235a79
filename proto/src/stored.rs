//! Undelivered events. Few have private data, so it is stored apart.

use core::hash::{Hash, Hasher};

use slab::Slab;

use crate::event::{AckToken, Datagram, Event, EventKind, RawEvent, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;

/// An event as it waits for its delivery: without an ack token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) of: Of,
    pub(crate) kind: EventKind,
    status: i32,
    param: ReceivedParam,
    /// Its private data and the destination of datagrams.
    pub(crate) data: Option<DataRef>,
}

static_assertions::const_assert!(core::mem::size_of::<Stored>() <= 64);

/// What an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Of {
    pub(crate) id: IdKey,
    /// Of a connection request, the listener.
    pub(crate) listener: Option<IdKey>,
    /// Of an event of a membership, the membership.
    pub(crate) group: Option<GroupKey>,
}

impl Of {
    pub(crate) fn id(id: IdKey) -> Self {
        Of { id, listener: None, group: None }
    }

    /// The id that the event belongs to: of a connection request the listener. The event moves with that id, and counts
    /// among its owed acks.
    pub(crate) fn owner(self) -> IdKey {
        self.listener.unwrap_or(self.id)
    }
}

/// An event of the device that is delivered at once.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) of: Of,
    pub(crate) ack_token: Option<AckToken>,
}

impl Delivery {
    /// Returns the event, which is [bare](RawEvent::is_bare).
    pub(crate) fn bare(self, raw: &RawEvent<&[u8]>) -> Event {
        let Delivery { of: Of { id, listener, group }, ack_token } = self;
        let (kind, status, param) = (EventKind::Cm(raw.kind), raw.status, raw.param);
        let private_data = PrivateData::empty();
        Event { id, listener, kind, status, param, datagram: None, group, private_data, ack_token }
    }

    /// Returns the event, with the data that it has.
    pub(crate) fn whole(self, raw: &RawEvent<&[u8]>) -> Option<Event> {
        // Filled in place: an event is large.
        let mut event = Some(self.bare(raw));
        if let Some(event) = &mut event {
            event.private_data.set(raw.private_data);
            event.datagram = raw.datagram;
        }
        event
    }
}

/// The place of an event's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataRef(u32);

/// What few events have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    private_data: PrivateData,
    datagram: Option<Datagram>,
}

/// The data of all undelivered events.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataSlab(Slab<Data>);

impl Stored {
    /// An event of the device.
    pub(crate) fn of(raw: &RawEvent<&[u8]>, of: Of, data: Option<DataRef>) -> Self {
        Stored { of, kind: EventKind::Cm(raw.kind), status: raw.status, param: raw.param, data }
    }

    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        Stored { of: Of::id(id), kind, status, param: ReceivedParam::default(), data: None }
    }

    /// The same event, of a membership.
    pub(crate) fn of_group(self, group: Option<GroupKey>) -> Self {
        Stored { of: Of { group, ..self.of }, ..self }
    }

    /// The same event of another id, which has no memberships.
    pub(crate) fn rekeyed(self, id: IdKey, data: Option<DataRef>) -> Self {
        Stored { of: Of { id, group: None, ..self.of }, data, ..self }
    }

    /// Whether the event is a connection request. The backlog of the listener limits their number.
    pub(crate) fn is_request(&self) -> bool {
        self.of.listener.is_some()
    }

    /// Whether the device has reported the event. Such an event needs an ack and counts against the limit.
    pub(crate) fn of_device(&self) -> bool {
        matches!(self.kind, EventKind::Cm(_))
    }

    /// Whether the event counts against the limit of one channel.
    pub(crate) fn of_channel(&self) -> bool {
        self.of_device() && !self.is_request()
    }

    /// The event without its data and without an ack token.
    pub(crate) fn bare(&self) -> Event {
        Event {
            id: self.of.id,
            listener: self.of.listener,
            kind: self.kind,
            status: self.status,
            param: self.param,
            datagram: None,
            group: self.of.group,
            private_data: PrivateData::empty(),
            ack_token: None,
        }
    }
}

impl DataSlab {
    /// Stores the data of an event, if it has some.
    pub(crate) fn keep(&mut self, raw: &RawEvent<&[u8]>) -> Option<DataRef> {
        if raw.is_bare() { None } else { self.keep_some(raw) }
    }

    fn keep_some(&mut self, raw: &RawEvent<&[u8]>) -> Option<DataRef> {
        self.insert(Data { private_data: PrivateData::copy_of(raw.private_data), datagram: raw.datagram })
    }

    pub(crate) fn insert(&mut self, data: Data) -> Option<DataRef> {
        // The limits on events are below 2^32.
        u32::try_from(self.0.insert(data)).ok().map(DataRef)
    }

    /// Removes the data of an event.
    pub(crate) fn take(&mut self, data: Option<DataRef>) -> Option<Data> {
        self.0.try_remove(data?.0 as usize)
    }

    /// Adds its data to an event, and removes it here.
    pub(crate) fn fill(&mut self, data: DataRef, event: &mut Event) {
        if let Some(Data { private_data, datagram }) = self.take(Some(data)) {
            (event.private_data, event.datagram) = (private_data, datagram);
        }
    }

    /// Returns a copy of an event that stays stored.
    pub(crate) fn copy_of(&self, stored: &Stored) -> Event {
        let mut event = stored.bare();
        if let Some(data) = stored.data.and_then(|data| self.0.get(data.0 as usize)) {
            (event.private_data, event.datagram) = (data.private_data.clone(), data.datagram);
        }
        event
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl PartialEq for DataSlab {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().eq(other.0.iter())
    }
}

impl Eq for DataSlab {}

impl Hash for DataSlab {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|entry| entry.hash(state));
    }
}
