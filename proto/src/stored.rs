//! Undelivered events. Few have private data, so it is stored apart.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::call::Outcome;
use crate::cm_event::CmEvent;
use crate::errno::Errno;
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

    /// What an event of the device belongs to.
    pub(crate) fn event(raw: &RawEvent<&[u8]>) -> Self {
        let is_request = raw.kind == CmEvent::ConnectRequest;
        let group = raw.group.filter(|_| raw.kind.is_of_group());
        Of { id: raw.id, listener: raw.listener.filter(|_| is_request), group }
    }

    /// The id that the event belongs to: of a connection request the listener. The event moves with that id, and counts
    /// among its owed acks.
    pub(crate) fn owner(self) -> IdKey {
        self.listener.unwrap_or(self.id)
    }
}

/// The place of an event's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataRef(u32);

/// What few events have. In a vacant place it is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    private_data: PrivateData,
    datagram: Option<Datagram>,
}

/// The data of all undelivered events. It is written in place: it is large.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataSlab {
    places: Vec<Data>,
    /// The places without data; the last one is used next.
    vacant: Vec<DataRef>,
}

impl Stored {
    /// An event of the device.
    pub(crate) fn of(raw: &RawEvent<&[u8]>, of: Of, data: Option<DataRef>) -> Self {
        Stored { of, kind: EventKind::Cm(raw.kind), status: raw.status, param: raw.param, data }
    }

    /// An event that the core makes itself.
    pub(crate) fn made(id: IdKey, kind: EventKind, outcome: Outcome) -> Self {
        let status = outcome.map_or_else(Errno::as_status, |()| 0);
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

    /// The event without its data.
    pub(crate) fn bare(&self, ack_token: Option<AckToken>) -> Event {
        Event {
            id: self.of.id,
            listener: self.of.listener,
            kind: self.kind,
            status: self.status,
            param: self.param,
            datagram: None,
            group: self.of.group,
            private_data: PrivateData::empty(),
            ack_token,
        }
    }
}

/// Takes the events of an id, `count` in number, from any positions in a queue, in order. The queue may be long: no event
/// behind the last of them is looked at.
pub(crate) fn take_events(events: &mut VecDeque<Stored>, owner: IdKey, count: u32, mut take: impl FnMut(&Stored)) {
    let (mut left, mut kept, mut end) = (count, 0, 0);
    while left > 0 {
        match events.get(end) {
            None => break,
            Some(stored) if stored.of.owner() == owner => {
                take(stored);
                left -= 1;
            }
            Some(_) => {
                if kept < end {
                    events.swap(kept, end);
                }
                kept += 1;
            }
        }
        end += 1;
    }
    // The shorter side moves.
    events.drain(kept..end);
}

impl DataSlab {
    /// Stores the data of an event, if it has some.
    pub(crate) fn keep(&mut self, raw: &RawEvent<&[u8]>) -> Option<DataRef> {
        if raw.is_bare() { None } else { self.insert(raw.private_data, raw.datagram) }
    }

    /// Stores the data of an event that comes from another core.
    pub(crate) fn adopt(&mut self, data: &Data) -> Option<DataRef> {
        self.insert(&data.private_data, data.datagram)
    }

    fn insert(&mut self, private_data: &[u8], datagram: Option<Datagram>) -> Option<DataRef> {
        let at = match self.vacant.pop() {
            Some(at) => at,
            None => {
                // The limits on events are below 2^32.
                let at = DataRef(u32::try_from(self.places.len()).ok()?);
                self.places.push(Data { private_data: PrivateData::EMPTY, datagram: None });
                at
            }
        };
        let place = self.places.get_mut(at.0 as usize)?;
        place.private_data.set(private_data);
        place.datagram = datagram;
        Some(at)
    }

    /// Removes the data of an event.
    pub(crate) fn discard(&mut self, data: Option<DataRef>) {
        if let Some((at, place)) = data.and_then(|at| Some((at, self.places.get_mut(at.0 as usize)?))) {
            place.private_data.set(&[]);
            place.datagram = None;
            self.vacant.push(at);
        }
    }

    /// Removes the data of an event, and returns it.
    pub(crate) fn take(&mut self, data: Option<DataRef>) -> Option<Data> {
        let taken = self.places.get(data?.0 as usize).cloned();
        self.discard(data);
        taken
    }

    /// Copies the data of an event to it.
    pub(crate) fn fill(&self, data: DataRef, event: &mut Event) {
        if let Some(Data { private_data, datagram }) = self.places.get(data.0 as usize) {
            event.private_data.set(private_data);
            event.datagram = *datagram;
        }
    }

    /// Returns a copy of an event that stays stored.
    pub(crate) fn copy_of(&self, stored: &Stored) -> Event {
        let mut event = stored.bare(None);
        if let Some(data) = stored.data {
            self.fill(data, &mut event);
        }
        event
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// Returns the data with its place. No data is empty.
    fn occupied(&self) -> impl Iterator<Item = (usize, &Data)> {
        let is_some = |(_, data): &(usize, &Data)| !data.private_data.is_empty() || data.datagram.is_some();
        self.places.iter().enumerate().filter(is_some)
    }
}

impl PartialEq for DataSlab {
    fn eq(&self, other: &Self) -> bool {
        self.occupied().eq(other.occupied())
    }
}

impl Eq for DataSlab {}

impl Hash for DataSlab {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.occupied().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of two ids in each order, with their numbers.
    #[test]
    fn the_events_of_one_id_are_taken_and_those_of_the_other_stay_in_order() {
        let ids = [0, 1].map(|slot| IdKey::from_parts(0, slot, 1).unwrap());
        for (len, order) in (0..10).flat_map(|len| (0_u32..1 << len).map(move |order| (len, order))) {
            let of = |at: u32| ids[(order >> at & 1) as usize];
            let made = |at: u32| Stored { status: at as i32, ..Stored::made(of(at), EventKind::Migrated, Ok(())) };
            let mut events: VecDeque<_> = (0..len).map(made).collect();
            let (expected, stay): (Vec<_>, Vec<_>) = (0..len).map(made).partition(|stored| stored.of.owner() == ids[1]);
            let mut taken = Vec::new();
            take_events(&mut events, ids[1], order.count_ones(), |stored| taken.push(*stored));
            assert_eq!((taken, Vec::from(events)), (expected, stay), "{len} events, {order:b}");
        }
    }
}
