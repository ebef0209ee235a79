//! Undelivered events. Few have private data, so it is stored apart.

use core::hash::{Hash, Hasher};

use slab::Slab;

use crate::event::{Datagram, Event, EventKind, RawEvent, ReceivedParam};
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;

/// An event as it waits for its delivery: without an ack token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) id: IdKey,
    /// Of a connection request, the listener.
    listener: Option<IdKey>,
    /// Of an event of a membership, the membership.
    pub(crate) group: Option<GroupKey>,
    pub(crate) kind: EventKind,
    status: i32,
    param: ReceivedParam,
    /// Its private data and the destination of datagrams.
    pub(crate) data: Option<DataRef>,
}

static_assertions::const_assert!(core::mem::size_of::<Stored>() <= 64);

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
    #[inline(always)]
    pub(crate) fn of(raw: &RawEvent<&[u8]>, data: Option<DataRef>) -> Self {
        Stored {
            id: raw.id,
            listener: None,
            group: None,
            kind: EventKind::Cm(raw.kind),
            status: raw.status,
            param: raw.param,
            data,
        }
    }

    /// A connection request, which belongs to its listener.
    pub(crate) fn of_listener(self, listener: IdKey) -> Self {
        Stored { listener: Some(listener), ..self }
    }

    /// An event of a membership.
    pub(crate) fn of_group(self, group: Option<GroupKey>) -> Self {
        Stored { group, ..self }
    }

    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, status: i32) -> Self {
        Stored { id, listener: None, group: None, kind, status, param: ReceivedParam::default(), data: None }
    }

    /// The same event of another id, which has no memberships.
    pub(crate) fn rekeyed(self, id: IdKey, data: Option<DataRef>) -> Self {
        Stored { id, group: None, data, ..self }
    }

    /// The id that the event belongs to: of a connection request the listener. The event moves with that id, and counts
    /// among its owed acks.
    #[inline(always)]
    pub(crate) fn owner(&self) -> IdKey {
        self.listener.unwrap_or(self.id)
    }

    /// Whether the event is a connection request. The backlog of the listener limits their number.
    #[inline(always)]
    pub(crate) fn is_request(&self) -> bool {
        self.listener.is_some()
    }

    /// Whether the device has reported the event. Such an event needs an ack and counts against the limit.
    #[inline(always)]
    pub(crate) fn of_device(&self) -> bool {
        matches!(self.kind, EventKind::Cm(_))
    }

    /// Whether the event counts against the limit of one channel.
    #[inline(always)]
    pub(crate) fn of_channel(&self) -> bool {
        self.of_device() && !self.is_request()
    }

    /// The event without its data and without an ack token.
    #[inline(always)]
    pub(crate) fn bare(&self) -> Event {
        Event {
            id: self.id,
            listener: self.listener,
            kind: self.kind,
            status: self.status,
            param: self.param,
            datagram: None,
            group: self.group,
            private_data: PrivateData::empty(),
            ack_token: None,
        }
    }
}

impl DataSlab {
    /// Stores the data of an event, if it has some.
    #[inline(always)]
    pub(crate) fn keep(&mut self, raw: &RawEvent<&[u8]>) -> Option<DataRef> {
        if raw.private_data.is_empty() && raw.datagram.is_none() { None } else { self.keep_some(raw) }
    }

    #[inline(never)]
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
    #[inline(never)]
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
