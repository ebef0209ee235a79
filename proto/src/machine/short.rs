//! Short paths of events: in, out, and acked. A short path does exactly what the long path of the same name does, for the
//! case that is by far the most frequent: an id for which nothing else is under way ([`Id::is_plain`](crate::id::Id)), and a
//! plain cell of the event table (`plain`). It leaves out what the long path would look for in vain. `short_tests` runs both
//! on every cell and compares.
//!
//! An event that is the only undelivered one of its channel is kept beside the lists of `mail`, in `Core::single`. It is
//! linked into them before any other event is put on a list, and before a request begins on the long path. Nothing else looks
//! at the list of a plain id, or makes an id less plain.

use super::Core;
use crate::event::{CmEvent, Event, EventKind, RawEvent, Receipt, ReceivedParam};
use crate::key::{ChannelKey, IdKey};
use crate::mail::Enclosed;
use crate::plain;
use crate::private_data::PrivateData;
use crate::request::Acks;
use crate::stored::Stored;
use crate::table::Fact;
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
    enclosed: Option<Enclosed>,
}

impl Single {
    #[inline(always)]
    fn bare(&self, receipt: Option<Receipt>) -> Event {
        Event {
            id: self.id,
            listener: None,
            kind: EventKind::Cm(self.kind),
            status: self.status,
            param: self.param,
            datagram: None,
            group: None,
            private_data: PrivateData::empty(),
            receipt,
        }
    }

    /// As it is stored on the lists.
    fn stored(&self) -> Stored {
        Stored::of(self.id, EventKind::Cm(self.kind), self.status, self.param, self.enclosed)
    }
}

impl Core {
    /// The short path of [`admit`](Core::admit). `false`: it is none for this event, and nothing has changed.
    #[inline(always)]
    pub(super) fn admit_short(&mut self, on: ChannelKey, raw: &RawEvent<'_>) -> bool {
        let Some(id) = self.ids.get_untouched(raw.id) else { return false };
        let Some(next) = plain::event(id.state, Fact::of(raw.kind)) else { return false };
        if id.home != on || self.single.is_some() || !id.is_plain() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(on).filter(|channel| channel.mail.head().is_none()) else {
            return false;
        };
        channel.failures = 0;
        let acks = channel.acks;
        let (kind, status, param) = (raw.kind, raw.status, raw.param);
        self.single = Some(Single { on, acks, id: raw.id, kind, status, param, enclosed: None });
        self.news += 1;
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
        let enclosed = self.mail.keep(raw.private_data, raw.datagram);
        if let Some(single) = &mut self.single {
            single.enclosed = enclosed;
        }
    }

    /// The short path of [`poll_event`](Core::poll_event), if there is a single event on this channel.
    #[inline]
    pub(super) fn poll_short(&mut self, on: ChannelKey) -> Option<Event> {
        let single = self.single.as_ref().filter(|single| single.on == on)?;
        let mut receipt = None;
        if single.acks == Acks::Explicit
            && let Some(owner) = self.ids.get_untouched(single.id)
        {
            owner.owed += 1;
            receipt = Some(Receipt { owner: single.id, group: None });
        }
        if single.enclosed.is_some() {
            let single = *single;
            return self.open_single(&single, receipt);
        }
        let event = single.bare(receipt);
        self.single = None;
        Some(event)
    }

    #[inline(never)]
    fn open_single(&mut self, single: &Single, receipt: Option<Receipt>) -> Option<Event> {
        self.single = None;
        // Filled in where it is returned.
        let mut opened = Some(single.bare(receipt));
        if let Some(event) = &mut opened {
            self.mail.enclose(single.enclosed, event);
        }
        self.mail.discard(single.enclosed);
        opened
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
        self.mail.of_device() + u32::from(self.single.is_some())
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
