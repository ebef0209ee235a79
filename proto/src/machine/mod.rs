//! The state machine. Inputs: requests, outcomes, raw events, time. Outputs: calls and events.

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
mod perform_sync;
mod queries;
mod queue;
mod release;
#[cfg(test)]
mod request_tests;
mod short;
#[cfg(test)]
mod short_deadline_tests;
#[cfg(test)]
mod short_sync_tests;
#[cfg(test)]
mod short_tests;
mod single;
mod submit;
mod summary;
mod teardown;
mod timeout;

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

use crate::arena::Arena;
use crate::call::Call;
use crate::channel::Channel;
use crate::deadlines::Deadlines;
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::group::Group;
use crate::id::{Id, PendingCall};
use crate::key::{ChannelKey, GroupKey, IdKey, Target, Token};
use crate::limits::Limits;
use crate::pending_events::PendingEvents;
use crate::request_kind::RequestKind;
use crate::slab_index::PrivateDataRef;
use crate::state::State;
use crate::time::Time;

pub use event::Admission;
pub(crate) use perform::MakeCall;
pub use release::Released;
pub(crate) use short::{Fetch, Read};
pub use summary::{Summary, WaitsFor};

use queue::Queue;
use single::Single;

/// The state of every id and channel of one event loop. The [crate's first page](crate) describes how to drive it.
#[derive(Clone, Debug)]
pub struct Core {
    limits: Limits,
    ids: Arena<IdKey, Id>,
    channels: Arena<ChannelKey, Channel>,
    groups: Arena<GroupKey, Group>,
    pending: PendingEvents,
    /// An undelivered event that is not on the lists of `pending` yet.
    single: Option<Single>,
    /// Calls to make, in order.
    calls: Queue<(Token, Call)>,
    /// Channels to read, each at most once.
    readable: Queue<ChannelKey>,
    /// Channels to read when there is room, each at most once.
    parked: Vec<ChannelKey>,
    /// Ids of undelivered requests that are to be destroyed, see `poll_child`.
    children: Queue<IdKey>,
    /// The number of entries of `calls`, `readable`, `parked` and `children`. At 0 none of them is looked at.
    queued: usize,
    deadlines: Deadlines,
    /// The number of the last call.
    last_call: u64,
    counters: Counters,
    activity: u64,
}

impl Core {
    /// Returns the fields that equality and hash compare, for a core without a single event. Not compared: the order
    /// in which vacant slots after the next one are used. The deadlines are compared as part of the ids.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity, reason = "the fields")]
    fn fields(&self) -> (impl Eq + Hash + '_, impl Eq + Hash + '_, impl Eq + Hash + '_) {
        (
            (&self.limits, &self.ids, &self.channels, &self.groups, &self.pending),
            (&self.calls, &self.readable, &self.parked, &self.children),
            (self.last_call, self.counters, self.activity),
        )
    }
}

// Equality ignores whether the newest event is in `single` or on the lists.
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
    /// Impossible events and outcomes.
    pub faults: u64,
    /// Undelivered events that were discarded with a destroyed id.
    pub discarded: u64,
}

/// The end of a request that made a call. [`Core::submit`] lists the requests that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The id or channel of the request.
    pub target: Target,
    /// The result. If an event completes the request, `Ok` means that the request has begun; it may be complete
    /// already.
    pub result: Result<(), Failure>,
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
            pending: PendingEvents::default(),
            single: None,
            calls: Queue::new(),
            readable: Queue::new(),
            parked: Vec::new(),
            children: Queue::new(),
            queued: 0,
            deadlines: Deadlines::new(),
            last_call: 0,
            counters: Counters::default(),
            activity: 0,
        }
    }

    /// Returns the next call to make, and the token to report its outcome with. `None` if there is none.
    #[inline]
    pub fn poll_call(&mut self) -> Option<(Token, Call)> {
        if self.calls.is_empty() {
            return None;
        }
        self.queued -= 1;
        self.calls.pop_front()
    }

    /// Whether there is a call to make.
    #[must_use]
    #[inline]
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the private data to send with the call of this token; empty for most calls.
    #[must_use]
    #[inline]
    pub fn call_data(&self, token: Token) -> &[u8] {
        if self.pending.private_data_len() == 0 { &[] } else { self.enclosed_with(token) }
    }

    fn enclosed_with(&self, token: Token) -> &[u8] {
        let private_data_ref = match token.target {
            Target::Id(id) => self.ids.get(id).filter(|id| id.call == Some(token.number)).and_then(Id::data_of_call),
            Target::Channel(_) => None,
        };
        self.pending.private_data_of(private_data_ref).map_or(&[], |private_data_of| &private_data_of.private_data)
    }

    /// Reports that a channel may have an event to read. [`poll_readable`](Core::poll_readable) returns it once;
    /// further reports before that have no effect.
    #[inline]
    pub fn handle_readable(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            if !core::mem::replace(&mut channel.readable, true) {
                self.readable.push_back(key);
                self.queued += 1;
            }
        }
    }

    /// Returns the next channel to read: one that was reported by [`handle_readable`](Core::handle_readable), or the
    /// new channel of a migrated id. The kernel moves pending events to that channel without waking its poller
    /// (`ucma_migrate_id`). The id of a request that is not accepted has no pending events (`ucma_event_handler`), so
    /// its new channel is not read.
    #[inline]
    pub fn poll_readable(&mut self) -> Option<ChannelKey> {
        if self.readable.is_empty() && self.parked.is_empty() { None } else { self.next_readable() }
    }

    #[inline]
    fn next_readable(&mut self) -> Option<ChannelKey> {
        if !self.parked.is_empty() {
            self.unpark();
        }
        while let Some(key) = self.readable.pop_front() {
            self.queued -= 1;
            let Some(channel) = self.channels.get_mut(key) else { continue };
            if core::mem::take(&mut channel.readable) {
                return Some(key);
            }
        }
        None
    }

    /// Marks channels as readable that have waited for room, if there is room now.
    #[inline(never)]
    fn unpark(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.parked.get(at) {
            if self.wants_event(key).is_none() {
                at += 1;
                continue;
            }
            self.parked.swap_remove(at);
            self.queued -= 1;
            if let Some(channel) = self.channels.get_mut(key) {
                channel.parked = false;
            }
            self.handle_readable(key);
        }
    }

    /// Whether a report that this channel is readable would make it the next channel to read, with no call to make
    /// first.
    #[inline]
    pub(crate) fn is_next(&self, key: ChannelKey) -> bool {
        self.queued == 0 && self.channels.contains(key)
    }

    /// Returns the number of channels that are marked as readable.
    #[inline]
    pub(crate) fn readable_channels(&self) -> usize {
        self.readable.len()
    }

    /// Whether this channel is the first of those that are marked as readable.
    pub(crate) fn is_first(&self, key: ChannelKey) -> bool {
        self.readable.front() == Some(&key)
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
            self.queued += 1;
        }
    }

    /// Returns the nearest deadline and its id. `None` if no operation has a deadline.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<(Time, IdKey)> {
        self.deadlines.first()
    }

    fn set_state(&mut self, key: IdKey, next: State) {
        if self.ids.get_mut(key).is_some_and(|id| id.enter(next)) {
            self.entered(key);
        }
    }

    /// Completes a change of state when [`Id::enter`] returns true.
    #[inline(never)]
    fn entered(&mut self, key: IdKey) {
        self.arm_deadline(key);
        if self.ids.get(key).is_some_and(|id| matches!(id.state, State::Removed | State::Destroying)) {
            self.end_joins(key);
        }
    }

    /// Whether one more id is within the limit.
    fn has_room(&self) -> bool {
        self.ids.len() < self.limits.ids as usize && self.ids.next_key().is_some()
    }

    fn token(&mut self, target: Target) -> Token {
        Token { number: count_call(&mut self.last_call), target }
    }

    /// Queues a call for an id and records its purpose.
    #[inline]
    fn call_for_id(&mut self, key: IdKey, pending_call: PendingCall, call: Call) {
        self.call_with(key, pending_call, None, call);
    }

    /// As `call_for_id`, with private data.
    #[inline]
    fn call_with(&mut self, key: IdKey, pending_call: PendingCall, call_data: Option<PrivateDataRef>, call: Call) {
        let token = self.token(Target::Id(key));
        if let Some(id) = self.ids.get_mut(key) {
            id.pending_call = pending_call;
            id.call = Some(token.number);
            id.call_data = call_data;
        }
        self.calls.push_back((token, call));
        self.queued += 1;
    }

    fn failure(&self, key: IdKey, request_kind: RequestKind, errno: Errno) -> Failure {
        Failure {
            call: request_kind.name(),
            target: Target::Id(key),
            state: self.state(key).unwrap_or(State::Destroying),
            errno,
            cause: None,
        }
    }

    fn get(&self, key: IdKey, request: RequestKind) -> Result<&Id, Refused> {
        self.ids.get(key).ok_or(Refused::NoSuchId { id: key, request })
    }
}

/// Returns the number of the next call. Inlined, so that the check against 0 is compiled only for callers that use the
/// number.
#[inline(always)]
fn count_call(last: &mut u64) -> NonZeroU64 {
    // With one call per nanosecond a number repeats after 584 years; no call takes that long.
    *last = last.wrapping_add(1);
    NonZeroU64::new(*last).unwrap_or(NonZeroU64::MIN)
}
