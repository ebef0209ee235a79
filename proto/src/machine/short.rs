//! Short paths of events: in, out, and acked. A short path does exactly what the long path of the same name does, for the
//! case that is by far the most frequent: an id for which nothing else is under way ([`Id::is_plain`](crate::id::Id)), and a
//! plain cell of the event table (`plain`). It leaves out what the long path would look for in vain. `short_tests` runs both
//! on every cell and compares.
//!
//! An event that is the only undelivered one of its channel is kept beside the lists of `pending`, in `Core::single`. It is
//! linked into them before any other event is put on a list, and before a request begins on the long path. Nothing else looks
//! at the list of a plain id, or makes an id less plain.

use super::Core;
use crate::event::{AckToken, CmEvent, Event, EventKind, RawEvent, ReceivedParam};
use crate::key::{ChannelKey, IdKey};
use crate::plain;
use crate::private_data::PrivateData;
use crate::request::Acks;
use crate::slab_index::PrivateDataRef;
use crate::stored::Stored;
use crate::table::EventColumn;
use crate::time::Time;

/// An undelivered event that is on no list: the only one of its channel. It is of the device, of no group and no request, and
/// its id was plain when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    pub(super) on: ChannelKey,
    /// The acks of the channel.
    acks: Acks,
    pub(super) id: IdKey,
    kind: CmEvent,
    status: i32,
    param: ReceivedParam,
    private_data_ref: Option<PrivateDataRef>,
}

impl Single {
    #[inline(always)]
    fn bare(&self, ack_token: Option<AckToken>) -> Event {
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

    /// As it is stored on the lists.
    fn stored(&self) -> Stored {
        Stored::of(self.id, EventKind::Cm(self.kind), self.status, self.param, self.private_data_ref)
    }
}

impl Core {
    /// The short path of [`admit`](Core::admit). `false`: it is none for this event, and nothing has changed.
    #[inline(always)]
    pub(super) fn admit_short(&mut self, on: ChannelKey, raw: &RawEvent<'_>) -> bool {
        let Some(id) = self.ids.get_untouched(raw.id) else { return false };
        let Some(next) = plain::event(id.state, EventColumn::of(raw.kind)) else { return false };
        if id.channel != on || self.single.is_some() || !id.is_plain() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(on).filter(|channel| channel.pending.head().is_none()) else {
            return false;
        };
        channel.failures = 0;
        let acks = channel.acks;
        let (kind, status, param) = (raw.kind, raw.status, raw.param);
        self.single = Some(Single { on, acks, id: raw.id, kind, status, param, private_data_ref: None });
        self.activity += 1;
        id.state = next.state;
        if next.ends {
            // It is plain only where it is waited for.
            id.has_device |= kind == CmEvent::AddrResolved;
            if id.deadline != Time::NEVER {
                self.set_deadline_short(raw.id, Time::NEVER);
            }
        }
        if !raw.private_data.is_empty() || raw.datagram.is_some() {
            self.enclose_single(raw);
        }
        true
    }

    #[inline(never)]
    fn enclose_single(&mut self, raw: &RawEvent<'_>) {
        let private_data_ref = self.pending.keep(raw.private_data, raw.datagram);
        if let Some(single) = &mut self.single {
            single.private_data_ref = private_data_ref;
        }
    }

    /// The short path of [`poll_event`](Core::poll_event), if there is a single event on this channel.
    #[inline]
    pub(super) fn poll_short(&mut self, on: ChannelKey) -> Option<Event> {
        let single = self.single.as_ref().filter(|single| single.on == on)?;
        let mut ack_token = None;
        if single.acks == Acks::Explicit
            && let Some(owner) = self.ids.get_untouched(single.id)
        {
            owner.owed += 1;
            ack_token = Some(AckToken { owner: single.id, group: None });
        }
        if single.private_data_ref.is_some() {
            return self.open_single(ack_token);
        }
        let event = single.bare(ack_token);
        self.single = None;
        Some(event)
    }

    #[inline(never)]
    fn open_single(&mut self, ack_token: Option<AckToken>) -> Option<Event> {
        let single = self.single.take()?;
        let mut event = single.bare(ack_token);
        self.pending.fill_private_data(single.private_data_ref, &mut event);
        self.pending.discard(single.private_data_ref);
        Some(event)
    }

    /// Puts the single event, if there is one, on the lists.
    #[inline]
    pub(super) fn link_single(&mut self) {
        if self.single.is_some() {
            self.link_now();
        }
    }

    #[inline(never)]
    fn link_now(&mut self) {
        if let Some(single) = self.single.take() {
            self.link(single.stored(), single.on);
        }
    }

    /// Undelivered events of the device, the single one included.
    #[inline]
    pub(super) fn undelivered(&self) -> u32 {
        self.pending.of_device() + u32::from(self.single.is_some())
    }

    /// As it is with the single event on the lists, if it has one.
    pub(super) fn linked(&self) -> Option<Core> {
        self.single.is_some().then(|| {
            let mut core = self.clone();
            core.link_single();
            core
        })
    }
}
