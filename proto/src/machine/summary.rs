//! A summary of a core in numbers, for logs and metrics.

use core::fmt;

use super::Core;
use super::info::Counters;
use crate::group::GroupPhase;
use crate::id::{Id, Rare};
use crate::key::IdKey;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;

/// The reason why an id waits. If there are several reasons, the first in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A device call that is due ([`Core::next`], [`Core::next_child`]).
    Call,
    /// Acks of the application. The call of this request follows: a destroy, migrate or leave.
    Acks(RequestKind),
    /// The event that ends this request. On an iWARP device a destroy waits for the event that ends a connect.
    Event(RequestKind),
}

/// The contents of a core in numbers ([`Core::summary`]). Its text is one line for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Ids in each state, at its [`State::index`].
    pub ids: [usize; State::COUNT],
    /// Channels, including private ones.
    pub channels: usize,
    /// Memberships in multicast groups.
    pub groups: usize,
    /// Undelivered events.
    pub events: usize,
    /// Acks that the application owes.
    pub owed: usize,
    /// Device calls that are due.
    pub calls: usize,
    /// Ids that wait for acks ([`WaitsFor::Acks`]), at the [`RequestKind::index`] of the request.
    pub for_acks: [usize; RequestKind::COUNT],
    /// Ids that wait for an event ([`WaitsFor::Event`]), at the [`RequestKind::index`] of the request.
    pub for_events: [usize; RequestKind::COUNT],
    /// Ids with a deadline.
    pub deadlines: usize,
    /// The nearest deadline and its id.
    pub next_deadline: Option<(Time, IdKey)>,
    /// The counters of events and outcomes without effect.
    pub counters: Counters,
}

impl Core {
    /// Returns the contents of the core in numbers. O(ids + channels + undelivered events).
    ///
    /// ```
    /// # use cmid_proto::{Acks, Core, Limits};
    /// let mut core = Core::new(Limits::SINGLE);
    /// let _ = core.open_channel(Acks::OnDelivery)?.1.end(Ok(()));
    /// assert_eq!(core.summary().to_string(), "ids 0, channels 1");
    /// # Ok::<(), cmid_proto::Refused>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            ids: [0; State::COUNT],
            channels: self.channels.len(),
            groups: self.groups.len(),
            events: 0,
            owed: 0,
            calls: self.due.len() + self.children.len(),
            for_acks: [0; RequestKind::COUNT],
            for_events: [0; RequestKind::COUNT],
            deadlines: 0,
            next_deadline: self.poll_timeout(),
            counters: self.counters,
        };
        for (key, id) in self.ids.iter() {
            summary.ids[id.state.index()] += 1;
            summary.owed += id.owed as usize;
            summary.deadlines += usize::from(id.due() != Time::NEVER);
            match self.waiting_for(key, id) {
                Some(WaitsFor::Acks(request_kind)) => summary.for_acks[request_kind.index()] += 1,
                Some(WaitsFor::Event(request_kind)) => summary.for_events[request_kind.index()] += 1,
                Some(WaitsFor::Call) | None => {}
            }
        }
        for (_, channel) in self.channels.iter() {
            summary.events += channel.events.len();
        }
        summary
    }

    /// Returns the ids that wait for the device or for acks, each with its reason. O(ids).
    pub fn waiting(&self) -> impl Iterator<Item = (IdKey, WaitsFor)> + '_ {
        self.ids.iter().filter_map(|(key, id)| Some((key, self.waiting_for(key, id)?)))
    }

    fn waiting_for(&self, key: IdKey, id: &Id) -> Option<WaitsFor> {
        let is_ready = id.rare.contains(Rare::MOVES) && id.owed == 0;
        let is_to_leave = self.memberships(key).any(|(_, group)| group.leaving && group.owed == 0);
        if is_ready || id.is_to_go() || is_to_leave || id.rare.contains(Rare::DISCONNECT_DUE) {
            Some(WaitsFor::Call)
        } else if id.state == State::Destroying && id.owed == 0 {
            Some(WaitsFor::Event(RequestKind::Connect))
        } else if id.state == State::Destroying {
            Some(WaitsFor::Acks(RequestKind::Destroy))
        } else if id.rare.contains(Rare::MOVES) {
            Some(WaitsFor::Acks(RequestKind::Migrate))
        } else if self.memberships(key).any(|(_, group)| group.leaving) {
            Some(WaitsFor::Acks(RequestKind::Leave))
        } else if self.memberships(key).any(|(_, group)| group.phase == GroupPhase::Joining) {
            Some(WaitsFor::Event(RequestKind::Join))
        } else {
            id.waits_for().or(table::operation(id.state)).map(WaitsFor::Event)
        }
    }
}

/// `ids 3 (2 idle, 1 connecting), channels 1, events 2, waiting for events: 1 connect, deadlines 1 (next 5.000000000 s,
/// id2)`. Numbers that are 0 are left out.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ids {}", self.ids.iter().sum::<usize>())?;
        list(f, " (", ")", State::ALL.into_iter().zip(self.ids))?;
        let Counters { late, stray, faults, discarded } = self.counters;
        let numbers = [("channels", self.channels), ("groups", self.groups), ("events", self.events)];
        let more = [("acks owed", self.owed), ("calls", self.calls)];
        for (name, number) in numbers.into_iter().chain(more).filter(|&(_, number)| number > 0) {
            write!(f, ", {name} {number}")?;
        }
        list(f, ", waiting for events: ", "", RequestKind::ALL.into_iter().zip(self.for_events))?;
        list(f, ", waiting for acks: ", "", RequestKind::ALL.into_iter().zip(self.for_acks))?;
        if let Some((due, id)) = self.next_deadline {
            write!(f, ", deadlines {} (next {due}, {id})", self.deadlines)?;
        }
        for (name, number) in [("late", late), ("stray", stray), ("faults", faults), ("discarded", discarded)] {
            if number > 0 {
                write!(f, ", {name} {number}")?;
            }
        }
        Ok(())
    }
}

/// Writes the numbers that are not 0, with their names; nothing if all are 0.
fn list<N: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    begin: &str,
    end: &str,
    numbers: impl Iterator<Item = (N, usize)>,
) -> fmt::Result {
    let mut before = begin;
    for (name, number) in numbers.filter(|&(_, number)| number > 0) {
        write!(f, "{before}{number} {name}")?;
        before = ", ";
    }
    if before == begin { Ok(()) } else { f.write_str(end) }
}
