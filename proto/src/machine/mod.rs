//! The state machine. Inputs: requests, outcomes, raw events, time. Outputs: calls and events.

mod accept;
mod begin;
mod begun;
mod channel;
mod check;
mod create;
mod decide;
mod deliver;
mod destroy;
mod due;
mod event;
mod group;
mod listen;
mod migrate;
mod next;
mod queries;
mod release;
mod summary;
mod sync;
mod teardown;
mod timeout;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::arena::Arena;
use crate::channel::Channel;
use crate::deadlines::Deadlines;
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::group::Group;
use crate::id::{Id, Rare};
use crate::key::{ChannelKey, GroupKey, IdKey, Target};
use crate::limits::Limits;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::DataSlab;
use crate::table;
use crate::time::Time;

pub use begun::{Begun, Flow, Progress};
pub use event::Admission;
pub use release::Released;
pub use summary::{Summary, WaitsFor};

use due::Due;

/// Where the next event of a channel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextOf {
    /// One is undelivered.
    Event,
    /// The channel may have one and is to be read.
    Read,
    Nothing,
}

/// The state of every id and channel of one event loop. The [crate's first page](crate) describes how to drive it.
#[derive(Clone, Debug)]
pub struct Core {
    limits: Limits,
    ids: Arena<IdKey, Id>,
    channels: Arena<ChannelKey, Channel>,
    groups: Arena<GroupKey, Group>,
    /// Calls that follow from an ack, an event, a deadline or another call, in order.
    due: VecDeque<Due>,
    /// Ids of undelivered requests that are to be destroyed, because their listener is.
    children: VecDeque<IdKey>,
    /// The application's channels to read, each at most once.
    readable: VecDeque<ChannelKey>,
    /// Private channels to read, each at most once.
    private_readable: VecDeque<ChannelKey>,
    /// Channels to read when there is room, each at most once.
    parked: Vec<ChannelKey>,
    /// The private data of undelivered events, and of those that have ended a synchronous request.
    data: DataSlab,
    /// The number of undelivered events that the device has reported, on all channels.
    undelivered: u32,
    /// The number of undelivered events on the application's channels that are not paused.
    deliverable: usize,
    deadlines: Deadlines,
    counters: Counters,
    activity: u64,
}

impl Core {
    /// Returns the fields that equality and hash compare. Not compared: the order in which vacant slots after the next one
    /// are used. The deadlines are compared as part of the ids.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity, reason = "the fields")]
    fn fields(&self) -> (impl Eq + Hash + '_, impl Eq + Hash + '_, impl Eq + Hash + '_) {
        (
            (&self.limits, &self.ids, &self.channels, &self.groups, &self.data, self.undelivered, self.deliverable),
            (&self.due, &self.children, &self.readable, &self.private_readable, &self.parked),
            (self.counters, self.activity),
        )
    }
}

impl PartialEq for Core {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl Eq for Core {}

impl Hash for Core {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields().hash(state);
    }
}

// Model checkers, a differential fuzzer and a replayer drive this type directly.
static_assertions::assert_impl_all!(Core: Clone, Eq, core::hash::Hash, Send, Sync);

/// Counters of events and outcomes that had no effect. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events of operations that had ended.
    pub late: u64,
    /// Events of ids that do not belong to this core.
    pub stray: u64,
    /// Impossible events, and objects that the device failed to close or destroy.
    pub faults: u64,
    /// Undelivered events that were discarded with a destroyed id.
    pub discarded: u64,
}

impl Core {
    /// Creates a core with no ids and no channels.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = limits.clamped();
        let number = limits.core.unwrap_or(0);
        Core {
            limits,
            // One more than the limit: `wants_event` needs a free key even for a channel that gets no requests.
            ids: Arena::new(limits.ids.saturating_add(1), number),
            channels: Arena::new(limits.channels, number),
            groups: Arena::new(limits.groups, number),
            due: VecDeque::new(),
            children: VecDeque::new(),
            readable: VecDeque::new(),
            private_readable: VecDeque::new(),
            parked: Vec::new(),
            data: DataSlab::default(),
            undelivered: 0,
            deliverable: 0,
            deadlines: Deadlines::new(),
            counters: Counters::default(),
            activity: 0,
        }
    }

    /// Reports that a channel may have an event to read. [`poll_readable`](Core::poll_readable) returns it once;
    /// further reports before that have no effect.
    pub fn handle_readable(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            if !core::mem::replace(&mut channel.readable, true) {
                if channel.private { &mut self.private_readable } else { &mut self.readable }.push_back(key);
            }
        }
    }

    /// Returns the next channel to read: one that was reported by [`handle_readable`](Core::handle_readable), or the
    /// new channel of a migrated id. The kernel moves pending events to that channel without waking its poller
    /// (`ucma_migrate_id`). The id of a request that is not accepted has no pending events (`ucma_event_handler`), so
    /// its new channel is not read. Private channels come first.
    pub fn poll_readable(&mut self) -> Option<ChannelKey> {
        let key = self.next_private().or_else(|| self.readable.front().copied())?;
        self.unmark(key);
        Some(key)
    }

    /// Begins a read of a channel: it is not marked as readable any more. Returns the key for a child if the core takes an
    /// event of this channel, see [`wants_event`](Core::wants_event).
    pub fn begin_read(&mut self, key: ChannelKey) -> Option<IdKey> {
        match self.channels.get_mut(key) {
            // As a rule.
            Some(channel) if !channel.parked && self.readable.front() == Some(&key) => {
                channel.readable = false;
                self.readable.pop_front();
            }
            Some(_) | None => self.unmark(key),
        }
        self.wants_event(key)
    }

    fn unmark(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if core::mem::take(&mut channel.parked) {
            self.parked.retain(|&other| other != key);
        }
        if core::mem::take(&mut channel.readable) {
            let marked = if channel.private { &mut self.private_readable } else { &mut self.readable };
            if marked.front() == Some(&key) {
                marked.pop_front();
            } else {
                marked.retain(|&other| other != key);
            }
        }
    }

    /// Returns the next private channel to read. No application takes its events from it, so a driver reads it in each turn.
    pub(crate) fn next_private(&self) -> Option<ChannelKey> {
        self.private_readable.front().copied()
    }

    /// Whether an application can take an event, or may after a read: one of its channels has an undelivered event or is
    /// marked as readable.
    pub(crate) fn has_deliverable(&self) -> bool {
        self.deliverable > 0 || !self.readable.is_empty()
    }

    /// Returns the first of the application's channels to read, if the core takes no event of it.
    pub(crate) fn unwanted(&self) -> Option<ChannelKey> {
        self.readable.front().copied().filter(|&key| self.wants_event(key).is_none())
    }

    /// Returns what the application's next event of a channel needs.
    pub(crate) fn next_of(&self, key: ChannelKey) -> NextOf {
        match self.channels.get(key) {
            Some(channel) if !channel.events.is_empty() => NextOf::Event,
            Some(channel) if channel.readable => NextOf::Read,
            Some(_) | None => NextOf::Nothing,
        }
    }

    /// Marks channels as readable that have waited for room, if there is room now. Called after an event is taken, an id is
    /// gone or a listener listens no more.
    fn unpark(&mut self) {
        if !self.parked.is_empty() {
            self.unpark_some();
        }
    }

    #[cold]
    fn unpark_some(&mut self) {
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

    /// Whether a private channel is to be read or a child to be destroyed.
    pub(crate) fn has_private_work(&self) -> bool {
        !(self.private_readable.is_empty() && self.children.is_empty())
    }

    /// Returns the number of private channels that are marked as readable.
    pub(crate) fn private_readable(&self) -> usize {
        self.private_readable.len()
    }

    /// Reports that a channel may have an event to read, for which there is no room: [`wants_event`](Core::wants_event)
    /// returned `None`. The channel is to be read again as soon as there is room, that is after an event is taken or an
    /// id is gone. A channel that is paused or has failed waits for its [`resume_channel`](Core::resume_channel)
    /// instead.
    pub fn wait_for_room(&mut self, key: ChannelKey) {
        let park = |channel: &mut Channel| {
            !channel.paused && !channel.has_failed() && !core::mem::replace(&mut channel.parked, true)
        };
        if self.wants_event(key).is_none() && self.channels.get_mut(key).is_some_and(park) {
            self.parked.push(key);
        }
    }

    /// Returns the nearest deadline and its id. `None` if no operation has a deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, IdKey)> {
        self.deadlines.first()
    }

    /// Changes the state of an id, other than by a cell of the tables. A deadline ends with its operation.
    fn set_state(&mut self, key: IdKey, next: State) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let before = core::mem::replace(&mut id.state, next);
        if before == next {
            return;
        }
        if next != State::Closing {
            id.rare.remove(Rare::ANSWER_DUE);
        }
        if table::operation(before).is_some() {
            id.deadline = Time::NEVER;
            self.arm(key);
        }
        if matches!(next, State::Removed | State::Destroying) {
            self.end_joins(key);
        }
        if before == State::Listening {
            self.unpark();
        }
    }

    /// Whether one more id is within the limit.
    fn has_room(&self) -> bool {
        self.ids.len() < self.limits.ids as usize && self.ids.next_key().is_some()
    }

    fn failure(&self, key: IdKey, call: &'static str, errno: Errno) -> Failure {
        let state = self.state(key).unwrap_or(State::Idle);
        Failure { call, target: Target::Id(key), state, errno, cause: None }
    }

    fn get(&self, key: IdKey, request: RequestKind) -> Result<&Id, Refused> {
        self.ids.get(key).ok_or(Refused::NoSuchId { id: key, request })
    }
}
