//! The machine: facts in, calls and events out.

mod accept;
mod channel;
mod check;
mod compare;
mod deliver;
mod destroy;
mod event;
mod group;
mod listen;
mod migrate;
mod outcome;
mod perform;
mod queue;
mod release;
mod short;
#[cfg(test)]
mod short_tests;
mod submit;
mod teardown;
mod timeout;

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

use crate::alarm::Alarms;
use crate::arena::Arena;
use crate::device::Call;
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::event::Event;
use crate::id::{Channel, Doing, Group, Id, Waiting};
use crate::key::{About, ChannelKey, GroupKey, IdKey, Token};
use crate::limits::Limits;
use crate::mail::{Enclosed, Mail};
use crate::request::{PortSpace, Verb};
use crate::state::State;
use crate::time::Time;

pub use event::Admission;
pub use release::Released;

use queue::Queue;
use short::Single;

/// The state of every id and channel of one event loop. See the [crate's first page](crate) for how it is driven.
#[derive(Clone, Debug)]
pub struct Core {
    limits: Limits,
    ids: Arena<IdKey, Id>,
    channels: Arena<ChannelKey, Channel>,
    groups: Arena<GroupKey, Group>,
    mail: Mail,
    /// An undelivered event that is not on the lists of `mail` yet.
    single: Option<Single>,
    /// Calls to be made, in order.
    calls: Queue<(Token, Call)>,
    /// Channels to be read, each once.
    readable: Queue<ChannelKey>,
    /// Channels to be read once there is room, each once.
    parked: Vec<ChannelKey>,
    /// Ids of undelivered requests that are to be destroyed, see `poll_child`.
    children: Queue<IdKey>,
    alarms: Alarms,
    last_token: NonZeroU64,
    counters: Counters,
    news: u64,
}

impl Core {
    /// All that makes a difference, if there is no single event, but for which of several vacant slots is used after the next.
    /// Deadlines are in the ids.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity, reason = "the fields")]
    fn fields(&self) -> (impl Eq + Hash + '_, impl Eq + Hash + '_, impl Eq + Hash + '_) {
        (
            (&self.limits, &self.ids, &self.channels, &self.groups, &self.mail),
            (&self.calls, &self.readable, &self.parked, &self.children),
            (self.last_token, self.counters, self.news),
        )
    }
}

// Whether the newest event is on the lists yet makes no difference.
impl PartialEq for Core {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.linked(), other.linked());
        ours.as_ref().unwrap_or(self).fields() == theirs.as_ref().unwrap_or(other).fields()
    }
}

impl Eq for Core {}

impl Hash for Core {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.linked().as_ref().unwrap_or(self).fields().hash(state);
    }
}

// A model checker, a differential fuzzer and a replayer drive the real code.
static_assertions::assert_impl_all!(Core: Clone, Eq, core::hash::Hash, Send, Sync);

/// What happened and led to nothing. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events that came after what they belong to was over.
    pub late: u64,
    /// Events for ids that this core does not have.
    pub stray: u64,
    /// Events and outcomes that cannot be.
    pub faults: u64,
    /// Undelivered events that went with a destroyed id.
    pub discarded: u64,
}

/// A request on which a call was made has come to its end. [`Core::submit`] says which requests have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the request was about.
    pub about: About,
    /// How it ended. A request that an event, or its deadline, completes has only begun when this is `Ok`, or is completed
    /// already.
    pub result: Result<(), Failure>,
}

impl Core {
    /// A core with no ids and no channels.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = limits.clamped();
        let number = limits.core.unwrap_or(0);
        Core {
            limits,
            // One more than the limit: the key for a request that no listener of the channel can bring.
            ids: Arena::new(limits.ids.saturating_add(1), number),
            channels: Arena::new(limits.channels, number),
            groups: Arena::new(limits.groups, number),
            mail: Mail::default(),
            single: None,
            calls: Queue::new(),
            readable: Queue::new(),
            parked: Vec::new(),
            children: Queue::new(),
            alarms: Alarms::new(),
            last_token: NonZeroU64::MIN,
            counters: Counters::default(),
            news: 0,
        }
    }

    /// The number that this core's keys carry.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.limits.core.unwrap_or(0)
    }

    /// The state of an id; `None` once it is gone.
    #[must_use]
    pub fn state(&self, id: IdKey) -> Option<State> {
        self.ids.get(id).map(|id| id.state)
    }

    /// The port space of an id.
    #[must_use]
    pub fn port_space(&self, id: IdKey) -> Option<PortSpace> {
        self.ids.get(id).map(|id| id.port_space)
    }

    /// The channel that an id's events are delivered on; for one in synchronous mode, its private one.
    #[must_use]
    pub fn home(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.home)
    }

    /// The channel that the device reports an id's events on. It is [`home`](Core::home) but for ids that listen, or have
    /// tried to: these have one of their own. The id of a request is on that of its listener until it is accepted or migrated.
    #[must_use]
    pub fn line(&self, id: IdKey) -> Option<ChannelKey> {
        self.ids.get(id).map(|id| id.line)
    }

    /// Whether a request on an id waits for the application's acks, and will end by event: a migration, a destruction or
    /// a leave (any of them, where several wait).
    #[must_use]
    pub fn waits_for_acks(&self, id: IdKey, request: Verb) -> bool {
        self.ids.get(id).is_some_and(|it| {
            (request == Verb::Migrate && it.quiesce.is_some())
                || (request == Verb::Destroy && it.state == State::Destroying)
                || (request == Verb::Leave && self.memberships(id).any(|(_, group)| group.leaving))
        })
    }

    /// Whether an id is in synchronous mode.
    #[must_use]
    pub fn is_sync(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(|id| id.sync)
    }

    /// Whether an id has a QP, as far as [`Request::AttachQp`](crate::Request::AttachQp) told.
    #[must_use]
    pub fn has_qp(&self, id: IdKey) -> bool {
        self.ids.get(id).is_some_and(|id| id.has_qp)
    }

    /// Whether a channel belongs to an id: one in synchronous mode, or a listener.
    #[must_use]
    pub fn is_private(&self, channel: ChannelKey) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.private)
    }

    /// Events delivered for an id and not acked yet.
    #[must_use]
    pub fn owed(&self, id: IdKey) -> u32 {
        self.ids.get(id).map_or(0, |id| id.owed)
    }

    /// The ids for which acks are owed, and how many. One whose receipts are lost is never moved or destroyed, but by
    /// [`Request::DestroyNow`](crate::Request::DestroyNow). It looks through all ids.
    pub fn ids_with_owed_acks(&self) -> impl Iterator<Item = (IdKey, u32)> + '_ {
        self.ids.iter().filter(|(_, id)| id.owed > 0).map(|(key, id)| (key, id.owed))
    }

    /// Whether a channel is there.
    #[must_use]
    pub fn has_channel(&self, channel: ChannelKey) -> bool {
        self.channels.contains(channel)
    }

    /// Whether a call, a channel to be read, or a child is waiting for the driver.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let has_room = |&key: &ChannelKey| self.wants_event(key).is_some();
        !self.calls.is_empty()
            || !self.readable.is_empty()
            || !self.children.is_empty()
            || self.parked.iter().any(has_room)
    }

    /// Every id there is, requests that the application has not heard of included: for a program that ends.
    pub fn id_keys(&self) -> impl Iterator<Item = IdKey> + '_ {
        self.ids.iter().map(|(key, _)| key)
    }

    /// Every channel there is, private ones included.
    pub fn channel_keys(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.channels.iter().map(|(key, _)| key)
    }

    /// How many ids there are.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    /// How many memberships in multicast groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// How many channels there are, private ones included.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// How often the application was given something to look at: an event to take, or the end of a synchronous request.
    /// A driver that sees it change does not go to sleep before the application has had a look.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.news
    }

    /// What led to nothing.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Synchronous mode: how the last request on the id that waits for an event ended; `None` while it is open or if
    /// there was none. The errno is the one that librdmacm would have set (`ucma_complete`), but a request ends only by
    /// an event of its own: DISCONNECTED during a connect is `ECONNRESET`, a device removal `ENODEV`, and a join ends by
    /// what is told of its own group.
    #[must_use]
    pub fn sync_result(&self, id: IdKey) -> Option<Result<(), Errno>> {
        match self.ids.get(id)?.waiting {
            Waiting::Never | Waiting::For(_) => None,
            Waiting::Without { timed_out: false } => Some(Ok(())),
            Waiting::Without { timed_out: true } => Some(Err(Errno::ETIMEDOUT)),
            Waiting::Ended(verb, letter) | Waiting::Posted(verb, letter) => {
                Some(self.to_event(self.mail.get(letter)).result_of(verb))
            }
        }
    }

    /// Synchronous mode: the request on an id that waits for its event.
    #[must_use]
    pub fn sync_open(&self, id: IdKey) -> Option<Verb> {
        match self.ids.get(id)?.waiting {
            Waiting::For(verb) => Some(verb),
            Waiting::Never | Waiting::Ended(..) | Waiting::Posted(..) | Waiting::Without { .. } => None,
        }
    }

    /// Synchronous mode: the event that completed the last request, readable until the id's next request
    /// (rdma_create_id(3)). `None` if it ended without one: at once, or at its deadline.
    #[must_use]
    pub fn sync_event(&self, id: IdKey) -> Option<Event> {
        match self.ids.get(id)?.waiting {
            Waiting::Ended(_, letter) | Waiting::Posted(_, letter) => Some(self.to_event(self.mail.get(letter))),
            Waiting::Never | Waiting::For(_) | Waiting::Without { .. } => None,
        }
    }

    /// The next call to make and the token to report its outcome under. `None` when there is none.
    #[inline]
    pub fn poll_call(&mut self) -> Option<(Token, Call)> {
        if self.calls.is_empty() { None } else { self.calls.pop_front() }
    }

    /// Whether there is a call to make.
    #[must_use]
    #[inline]
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The private data to send with the call of this token; empty for most.
    #[must_use]
    #[inline]
    pub fn call_data(&self, token: Token) -> &[u8] {
        if self.mail.enclosures_len() == 0 { &[] } else { self.enclosed_with(token) }
    }

    fn enclosed_with(&self, token: Token) -> &[u8] {
        let enclosed = match token.about {
            About::Id(id) => self.ids.get(id).filter(|id| id.call == Some(token.number)).and_then(Id::data_of_call),
            About::Channel(_) => None,
        };
        self.mail.enclosure(enclosed).map_or(&[], |enclosure| &enclosure.private_data)
    }

    /// Says that a channel may have something to read. Once noted, it is asked for once.
    #[inline]
    pub fn handle_readable(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key)
            && !core::mem::replace(&mut channel.readable, true)
        {
            self.readable.push_back(key);
        }
    }

    /// The next channel to be read. Besides those of [`handle_readable`](Core::handle_readable) there is the one that an
    /// id was just migrated to: the kernel moves pending events there and wakes no one (`ucma_migrate_id`). The id of a request
    /// that is not accepted has none (`ucma_event_handler`).
    #[inline]
    pub fn poll_readable(&mut self) -> Option<ChannelKey> {
        if self.readable.is_empty() && self.parked.is_empty() { None } else { self.next_readable() }
    }

    #[inline(never)]
    fn next_readable(&mut self) -> Option<ChannelKey> {
        if !self.parked.is_empty() {
            self.unpark();
        }
        while let Some(key) = self.readable.pop_front() {
            if let Some(channel) = self.channels.get_mut(key)
                && core::mem::take(&mut channel.readable)
            {
                return Some(key);
            }
        }
        None
    }

    /// Channels that waited for room, and have it, are to be read.
    #[inline(never)]
    fn unpark(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.parked.get(at) {
            if self.wants_event(key).is_none() {
                at += 1;
                continue;
            }
            self.parked.swap_remove(at);
            if let Some(channel) = self.channels.get_mut(key) {
                channel.parked = false;
            }
            self.handle_readable(key);
        }
    }

    /// Whether this channel, once noted as readable, would be the next to be read, with no call to be made before.
    #[inline]
    pub(crate) fn is_next(&self, key: ChannelKey) -> bool {
        self.calls.is_empty()
            && self.readable.is_empty()
            && self.parked.is_empty()
            && self.children.is_empty()
            && self.channels.contains(key)
    }

    /// Whether this channel stands first among those that were noted as readable.
    pub(crate) fn is_first(&self, key: ChannelKey) -> bool {
        self.readable.front() == Some(&key)
    }

    /// Says that a channel may have something to read for which there is no room: [`wants_event`](Core::wants_event) said so.
    /// It is to be read again as soon as there is: when an event was taken, or an id has gone. One that is paused or has
    /// failed waits for its [`resume_channel`](Core::resume_channel) instead.
    pub fn wait_for_room(&mut self, key: ChannelKey) {
        if self.wants_event(key).is_none()
            && let Some(channel) = self.channels.get_mut(key)
            && !channel.paused
            && !channel.has_failed()
            && !core::mem::replace(&mut channel.parked, true)
        {
            self.parked.push(key);
        }
    }

    /// The nearest deadline and whose it is. `None` if no operation has one.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<(Time, IdKey)> {
        self.alarms.first()
    }

    fn set_state(&mut self, key: IdKey, next: State) {
        if let Some(id) = self.ids.get_mut(key)
            && id.enter(next)
        {
            self.entered(key);
        }
    }

    /// What [`Id::enter`] leaves to be done.
    #[inline(never)]
    fn entered(&mut self, key: IdKey) {
        self.set_alarm(key);
        if self.ids.get(key).is_some_and(|id| matches!(id.state, State::Removed | State::Destroying)) {
            self.end_joins(key);
        }
    }

    /// Whether one more id keeps the limit.
    fn has_room(&self) -> bool {
        self.ids.len() < self.limits.ids as usize && self.ids.next_key().is_some()
    }

    fn token(&mut self, about: About) -> Token {
        // After a call in each nanosecond of 584 years one could come back; no call takes that long.
        self.last_token = self.last_token.checked_add(1).unwrap_or(NonZeroU64::MIN);
        Token { number: self.last_token, about }
    }

    /// Queues a call about an id and notes what for.
    #[inline]
    fn call_for_id(&mut self, key: IdKey, doing: Doing, call: Call) {
        self.call_with(key, doing, None, call);
    }

    /// The same, with private data.
    #[inline]
    fn call_with(&mut self, key: IdKey, doing: Doing, call_data: Option<Enclosed>, call: Call) {
        let token = self.token(About::Id(key));
        if let Some(id) = self.ids.get_mut(key) {
            id.doing = doing;
            id.call = Some(token.number);
            id.call_data = call_data;
        }
        self.calls.push_back((token, call));
    }

    fn failure(&self, key: IdKey, verb: Verb, errno: Errno) -> Failure {
        Failure { call: verb.name(), state: self.state(key).unwrap_or(State::Destroying), errno }
    }

    fn get(&self, key: IdKey, request: Verb) -> Result<&Id, Refused> {
        self.ids.get(key).ok_or(Refused::NoSuchId { id: key, request })
    }
}
