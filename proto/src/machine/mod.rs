//! The state machine. Inputs: requests, outcomes, raw events, time. Outputs: calls and events.

mod admit;
mod begin;
mod begun;
mod check;
mod create;
mod decide;
mod deliver;
mod destroy;
mod ids_on_channels;
pub mod info;
mod listen;
mod migrate;
mod multicast;
mod next;
mod reads;
mod release;
mod summary;
mod sync;
mod timeout;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::arena::Arena;
use crate::channel::Channel;
use crate::deadlines::Deadlines;
use crate::errno::Errno;
use crate::error::Failure;
use crate::group::Group;
use crate::id::{Id, Rare};
use crate::key::{ChannelKey, GroupKey, IdKey, Target};
use crate::limits::Limits;
use crate::state::State;
use crate::stored::DataSlab;
use crate::table;
use crate::time::Time;

pub use admit::Admission;
pub(crate) use admit::Admitted;
pub use begun::{Begun, Flow, Progress};
pub(crate) use reads::NextOf;
pub use release::Released;

use info::Counters;
use next::Due;

/// The state of every id and channel of one event loop. The [crate's first page](crate) describes how to drive it.
///
/// ```
/// use core::time::Duration;
/// use cmid_proto::{Acks, CmEvent, Core, Flow, Limits, PortSpace, RawEvent, Request, State, Time};
///
/// let mut core = Core::new(Limits::SINGLE);
/// let (channel, begun) = core.open_channel(Acks::OnDelivery)?;
/// assert!(begun.call().is_some()); // a driver makes this call, and reports its outcome
/// assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
/// let (id, begun) = core.create_id(Some(channel), PortSpace::Tcp)?;
/// assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
///
/// let resolve = Request::ResolveAddr { src: None, dst: "10.0.0.2:7471".parse()? };
/// let begun = core.begin(Time::ZERO, id, &resolve, Time::ZERO.after(Duration::from_secs(2)))?;
/// assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
///
/// // What the device reports moves the id, and is delivered on its channel.
/// core.handle_event(channel, RawEvent::new(id, CmEvent::AddrResolved))?;
/// assert_eq!(core.state(id), Some(State::AddrResolved));
/// let event = core.poll_event(channel).ok_or("no event")?;
/// assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
///
/// assert_eq!(core.poll_timeout(), None); // the request has ended, and its deadline with it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    limits: Limits,
    ids: Arena<IdKey, Id>,
    channels: Arena<ChannelKey, Channel>,
    groups: Arena<GroupKey, Group>,
    /// Calls that follow from an ack, an event, a deadline or another call, in order.
    due: VecDeque<Due>,
    /// Ids of undelivered requests that are to be destroyed, because their listener is.
    children: VecDeque<IdKey>,
    /// The application's channels to read, each at most once. The first one is to be read, one behind it perhaps no more.
    readable: VecDeque<ChannelKey>,
    /// The same of private channels.
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

// Model checkers, a differential fuzzer and a replayer drive this type directly.
static_assertions::assert_impl_all!(Core: Clone, Eq, core::hash::Hash, Send, Sync);

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
            id.rare.remove(Rare::DISCONNECT_DUE);
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
}
