//! Short paths of the admission, delivery and ack of events. A short path has exactly the effect of the long path of
//! the same name. It handles by far the most frequent case: an id for which nothing else is under way
//! ([`Id::is_plain`](crate::id::Id)), and a plain cell of the event table (`plain`). It omits the work that this case
//! does not need. `short_tests` compares both on every cell.
//!
//! The only undelivered event of a channel can be stored outside the lists of `pending`, in `Core::single`. It is
//! linked into the lists before another event is stored, and before a request begins on the long path. No other code
//! reads the list of a plain id, or makes a plain id not plain.

use super::Core;
use super::event::{Admission, has_room};
use super::single::Single;
use super::timeout::change_deadline;
use crate::arena::Arena;
use crate::cm_event::CmEvent;
use crate::deadlines::Deadlines;
use crate::device::EventSink;
use crate::errno::Errno;
use crate::error::Fault;
use crate::event::{AckToken, Datagram, Event, RawEvent};
use crate::id::Id;
use crate::key::{ChannelKey, IdKey};
use crate::plain;
use crate::request::Acks;
use crate::table::EventColumn;
use crate::time::Time;

/// The result of a read on the short path.
#[derive(Debug)]
pub(crate) enum Read {
    /// The core has no work left.
    Done,
    /// The event took the long path.
    Taken(Result<Admission, Fault>),
    /// The read failed.
    Failed(ChannelKey, Errno),
}

/// Reads events of a device. A trait, because a closure cannot be `inline(always)`.
pub(crate) trait Fetch {
    /// As [`Device::fetch_into`](crate::Device::fetch_into).
    fn fetch(&mut self, on: ChannelKey, child: IdKey, sink: &mut impl EventSink) -> Result<bool, Errno>;
}

/// Applies a plain event to its id. Its channel has this ack mode and no undelivered event. Returns the event, and
/// whether [`settle_deadlines`](Core::settle_deadlines) must follow. `None` if the event is not plain; then nothing has
/// changed.
#[inline(always)]
fn admit_to(
    ids: &mut Arena<IdKey, Id>,
    deadlines: &mut Deadlines,
    (on, acks): (ChannelKey, Acks),
    raw: &RawEvent<&[u8]>,
) -> Option<(Single, bool)> {
    let id = ids.get_untouched(raw.id)?;
    let next = plain::event(id.state, EventColumn::of(raw.kind))?;
    if id.channel != on || !id.is_plain() {
        return None;
    }
    id.state = next.state;
    let mut is_to_settle = false;
    if next.ends() {
        // An ADDR_RESOLVED is plain only in the state that waits for it.
        id.on_device.note(raw.kind == CmEvent::AddrResolved);
        if id.deadline != Time::NEVER {
            is_to_settle = change_deadline(id, raw.id, Time::NEVER, deadlines);
        }
    }
    let (kind, status, param) = (raw.kind, raw.status, raw.param);
    Some((Single { on, acks, id: raw.id, kind, status, param, private_data_ref: None }, is_to_settle))
}

/// Admits the event of a read, on the short path or on the long one.
struct ReadSink<'a> {
    core: &'a mut Core,
    on: ChannelKey,
    acks: Acks,
    /// Whether there is no undelivered event, and the last read of the channel has not failed.
    may_be_short: bool,
    read: &'a mut Read,
}

impl EventSink for ReadSink<'_> {
    #[inline(always)]
    fn take(&mut self, raw: RawEvent<&[u8]>) {
        if !self.may_be_short || !self.core.admit_single(self.on, self.acks, &raw) {
            *self.read = self.core.take_read_event(self.on, raw);
        }
    }
}

/// Admits the event of a read of a listener's channel.
struct RequestSink<'a> {
    core: &'a mut Core,
    on: ChannelKey,
    child: IdKey,
    read: Read,
}

impl EventSink for RequestSink<'_> {
    fn take(&mut self, raw: RawEvent<&[u8]>) {
        if !self.core.admit_request_short(self.on, self.child, &raw) {
            self.read = Read::Taken(self.core.take_any_event(self.on, &raw));
        }
    }
}

impl Core {
    /// The short path of [`admit`](Core::admit). Returns false if the event has none; then nothing has changed.
    #[inline(always)]
    pub(super) fn admit_short(&mut self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> bool {
        if self.single.is_some() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(on).filter(|channel| channel.pending.head().is_none()) else {
            return false;
        };
        let admitted = admit_to(&mut self.ids, &mut self.deadlines, (on, channel.acks), raw);
        let Some((single, is_to_settle)) = admitted else { return false };
        channel.failures = 0;
        self.keep_single(single, is_to_settle, raw);
        true
    }

    /// As `admit_short`, for a channel with this ack mode, without an undelivered event and without failed reads, while
    /// there is no single event.
    #[inline(always)]
    fn admit_single(&mut self, on: ChannelKey, acks: Acks, raw: &RawEvent<&[u8]>) -> bool {
        let admitted = admit_to(&mut self.ids, &mut self.deadlines, (on, acks), raw);
        let Some((single, is_to_settle)) = admitted else { return false };
        self.keep_single(single, is_to_settle, raw);
        true
    }

    #[inline(always)]
    fn keep_single(&mut self, single: Single, is_to_settle: bool, raw: &RawEvent<&[u8]>) {
        self.single = Some(single);
        self.activity += 1;
        if is_to_settle {
            self.settle_deadlines();
        }
        if !raw.private_data.is_empty() || raw.datagram.is_some() {
            self.enclose_single(raw.private_data, raw.datagram);
        }
    }

    #[inline(never)]
    fn enclose_single(&mut self, private_data: &[u8], datagram: Option<Datagram>) {
        let private_data_ref = self.pending.keep(private_data, datagram);
        if let Some(single) = &mut self.single {
            single.private_data_ref = private_data_ref;
        }
    }

    /// The short path of [`admit_request`](Core::admit_request). `child` is the key that
    /// [`wants_event`](Core::wants_event) has returned for this channel. Returns false if the event has no short path;
    /// then nothing has changed.
    #[inline(never)]
    pub(super) fn admit_request_short(&mut self, on: ChannelKey, child: IdKey, raw: &RawEvent<&[u8]>) -> bool {
        let is_request = raw.kind == CmEvent::ConnectRequest && raw.id == child && !raw.private_data.is_empty();
        let Some(key) = raw.listener.filter(|_| is_request) else { return false };
        if self.channels.get(on).is_none_or(|channel| channel.listener != raw.listener) {
            return false;
        }
        let Some(listener) = self.ids.get_untouched(key) else { return false };
        let (to, port_space) = (listener.channel, listener.port_space);
        // A linked request does not count against the limit of its channel, but a single event does. These limits are
        // high enough that the difference has no effect.
        let has_room = self.limits.channel_events > 1 && self.pending.of_device() + 1 < self.limits.events;
        if self.single.is_some() || !has_room || to == on || listener.device_channel != on || !listener.only_listens() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(to).filter(|channel| channel.pending.head().is_none()) else {
            return false;
        };
        channel.ids += 1;
        let acks = channel.acks;
        listener.requests += 1;
        if let Some(device_channel) = self.channels.get_mut(on) {
            device_channel.failures = 0;
            device_channel.ids += 1;
        }
        self.ids.insert_with(|| Id::child(port_space, to, on));
        self.activity += 1;
        let private_data_ref = self.pending.keep(raw.private_data, raw.datagram);
        let (kind, status, param) = (raw.kind, raw.status, raw.param);
        self.single = Some(Single { on: to, acks, id: child, kind, status, param, private_data_ref });
        true
    }

    /// The short path of a turn. Reads the only channel to be read, if there is no other work and the channel is not a
    /// listener's. It looks up the channel once; the long path does so several times. If `reported` is a channel, the
    /// short path includes [`handle_readable`](Core::handle_readable) for it. Returns `None` if there is no short path;
    /// then nothing has changed. Pass [`Read::Done`] as `read`; the result is written to it, because returning it would
    /// copy it.
    #[inline(always)]
    pub(crate) fn read_short(
        &mut self,
        now: Time,
        reported: Option<ChannelKey>,
        from: &mut impl Fetch,
        read: &mut Read,
    ) -> Option<()> {
        let on = self.to_read(reported)?;
        if self.is_due(now) {
            return None;
        }
        let channel = self.channels.get_mut(on)?;
        if !channel.is_read() || channel.listener.is_some() {
            return None;
        }
        let is_empty = self.single.is_none() && channel.pending.head().is_none();
        if !is_empty && !has_room(on, channel, self.single.as_ref(), self.pending.of_device(), &self.limits) {
            return None;
        }
        let (acks, may_be_short) = (channel.acks, is_empty && channel.failures == 0);
        let child = self.ids.next_key()?;
        if reported.is_none() {
            self.readable.take_only();
            self.queued -= 1;
            channel.readable = false;
        }
        if let Err(errno) = from.fetch(on, child, &mut ReadSink { core: self, on, acks, may_be_short, read }) {
            *read = Read::Failed(on, errno);
        }
        Some(())
    }

    /// Returns the channel that is to be read, the reported one if there is one. `None` if a turn has other work,
    /// deadlines apart.
    #[inline(always)]
    fn to_read(&self, reported: Option<ChannelKey>) -> Option<ChannelKey> {
        match reported {
            Some(_) if self.queued == 0 => reported,
            None if self.queued == 1 => self.readable.front().copied(),
            Some(_) | None => None,
        }
    }

    /// Whether a deadline has come.
    #[inline(always)]
    fn is_due(&self, now: Time) -> bool {
        self.deadlines.first().is_some_and(|(due, _)| due <= now)
    }

    /// Admits an event on the long path. The event is passed by value, because a reference would force the caller to
    /// store it in memory on the short path too.
    #[inline(never)]
    fn take_read_event(&mut self, on: ChannelKey, raw: RawEvent<&[u8]>) -> Read {
        Read::Taken(self.take_any_event(on, &raw))
    }

    /// As [`read_short`](Core::read_short), for the channel of a listener. A separate function, because the code would
    /// slow down [`read_short`](Core::read_short) for all other channels.
    #[inline(always)]
    pub(crate) fn read_requests_short(
        &mut self,
        now: Time,
        reported: Option<ChannelKey>,
        from: &mut impl Fetch,
    ) -> Option<Read> {
        let on = self.to_read(reported)?;
        if self.is_due(now) {
            return None;
        }
        if self.channels.get(on).is_none_or(|channel| channel.listener.is_none()) {
            return None;
        }
        let child = self.wants_event(on)?;
        if reported.is_none() {
            self.readable.take_only();
            self.queued -= 1;
            if let Some(channel) = self.channels.get_mut(on) {
                channel.readable = false;
            }
        }
        let mut sink = RequestSink { core: self, on, child, read: Read::Done };
        Some(match from.fetch(on, child, &mut sink) {
            Ok(_) => sink.read,
            Err(errno) => Read::Failed(on, errno),
        })
    }

    /// The short path of [`poll_event`](Core::poll_event). `None` if this channel has no single event.
    #[inline]
    pub(super) fn poll_short(&mut self, on: ChannelKey) -> Option<Event> {
        let single = self.single.as_ref().filter(|single| single.on == on)?;
        let mut ack_token = None;
        if single.acks == Acks::Explicit {
            if let Some(owner) = self.ids.get_untouched(single.id) {
                owner.owed += 1;
                ack_token = Some(AckToken { owner: single.id, group: None });
            }
        }
        if single.private_data_ref.is_some() {
            let single = *single;
            return self.open_single(&single, ack_token);
        }
        let event = single.bare(ack_token);
        self.single = None;
        Some(event)
    }

    #[inline(never)]
    fn open_single(&mut self, single: &Single, ack_token: Option<AckToken>) -> Option<Event> {
        if single.kind == CmEvent::ConnectRequest {
            return self.open_request(single, ack_token);
        }
        self.fill_single(single, ack_token, None)
    }

    /// Delivers a connection request. Its ack was counted for the new id; it belongs to the listener, which owns the
    /// event.
    #[inline(never)]
    fn open_request(&mut self, single: &Single, mut ack_token: Option<AckToken>) -> Option<Event> {
        let listener = self.listener_of(single);
        if let Some(token) = &mut ack_token {
            if let Some(child) = self.ids.get_untouched(single.id) {
                child.owed -= 1;
                token.owner = listener.unwrap_or(single.id);
            }
        }
        if let Some(listener) = listener.and_then(|key| self.ids.get_untouched(key)) {
            listener.owed += u32::from(ack_token.is_some());
            listener.requests -= 1;
        }
        self.fill_single(single, ack_token, listener)
    }

    #[inline(always)]
    fn fill_single(&mut self, single: &Single, ack_token: Option<AckToken>, listener: Option<IdKey>) -> Option<Event> {
        self.single = None;
        // Built in the return value, to avoid a copy.
        let mut opened = Some(single.bare(ack_token));
        if let Some(event) = &mut opened {
            event.listener = listener;
            self.pending.fill_private_data(single.private_data_ref, event);
        }
        self.pending.discard(single.private_data_ref);
        opened
    }

    /// Returns the listener of a single event that is a connection request. The new id is still on the listener's
    /// channel.
    pub(super) fn listener_of(&self, single: &Single) -> Option<IdKey> {
        if single.kind != CmEvent::ConnectRequest {
            return None;
        }
        let child = self.ids.get(single.id)?;
        self.channels.get(child.device_channel)?.listener
    }

    /// Puts the single event on the lists, if there is one.
    #[inline]
    pub(super) fn link_single(&mut self) {
        if self.single.is_some() {
            self.link_now();
        }
    }

    #[inline(never)]
    fn link_now(&mut self) {
        if let Some(single) = self.single.take() {
            self.link(single.stored(self.listener_of(&single)), single.on);
        }
    }

    /// Returns the number of undelivered events of the device, including the single one.
    #[inline]
    pub(super) fn undelivered(&self) -> u32 {
        self.pending.of_device() + u32::from(self.single.is_some())
    }

    /// Returns a copy with the single event on the lists; `None` if there is no single event.
    pub(super) fn linked(&self) -> Option<Core> {
        self.single.is_some().then(|| {
            let mut core = self.clone();
            core.link_single();
            core
        })
    }
}
