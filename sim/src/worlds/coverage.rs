//! What of the states, requests, events and rules the runs of a test have met.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmid_proto::drive::StepRecord;
use cmid_proto::table::{EventColumn, operation};
use cmid_proto::{Core, IdKey, Observer, RequestKind, State, Step};

use crate::fabric::rules::{Kind, Met, RuleKind};

/// The cells of the two tables of [`cmid_proto::table`] that the drives with a [`Covering`] have met, the rules that had an
/// effect, and the faults. From [`Report::coverage`](crate::Report::coverage) and [`World::coverage`](crate::World::coverage).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    requests: [u32; State::COUNT],
    events: [u32; State::COUNT],
    rules: Met,
    pub(super) faults: u64,
}

// A column is a bit.
static_assertions::const_assert!(RequestKind::COUNT <= 32 && EventColumn::COUNT <= 32);

impl Coverage {
    /// Whether a request was made in a state, or refused there.
    #[must_use]
    pub fn has_request(&self, state: State, request: RequestKind) -> bool {
        self.requests[state.index()] & 1 << request.index() != 0
    }

    /// Whether an event was read in a state, late ones included, or a deadline has passed.
    #[must_use]
    pub fn has_event(&self, state: State, event: EventColumn) -> bool {
        self.events[state.index()] & 1 << event.index() != 0
    }

    /// Returns how often rules have had this effect on something of this kind, or on anything at all.
    #[must_use]
    pub fn rules(&self, rule: RuleKind, kind: impl Into<Option<Kind>>) -> u64 {
        let kind = kind.into();
        let of = self.rules.iter().filter(|(met, _)| met.0 == rule && (kind.is_none() || met.1 == kind));
        of.map(|(_, count)| count).sum()
    }

    /// Returns how many of the faults that were planned have begun. The others come after the end of the run.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Adds what another one has met.
    pub(super) fn add(&mut self, other: &Coverage) {
        let with =
            |cells: &mut [u32], others: &[u32]| cells.iter_mut().zip(others).for_each(|(it, other)| *it |= other);
        with(&mut self.requests, &other.requests);
        with(&mut self.events, &other.events);
        self.add_rules(other.rules.clone());
        self.faults += other.faults;
    }

    pub(super) fn add_rules(&mut self, rules: Met) {
        rules.into_iter().for_each(|(met, count)| *self.rules.entry(met).or_default() += count);
    }
}

/// A line with the numbers, a line for each state that was met, what rules have met, and the faults. A look-up has no kind of
/// message:
///
/// ```text
/// 2 of 598 cells of requests, 1 of 414 of events
/// idle: resolve_addr, destroy
/// resolving address: ADDR_RESOLVED
/// rules: 3 Drop Rep, 1 Cut look-up
/// faults: 2
/// ```
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |cells: &[u32]| cells.iter().map(|row| row.count_ones()).sum::<u32>();
        let (requests, events) = (State::COUNT * RequestKind::COUNT, State::COUNT * EventColumn::COUNT);
        let [made, read] = [count(&self.requests), count(&self.events)];
        write!(f, "{made} of {requests} cells of requests, {read} of {events} of events")?;
        for state in State::ALL {
            let made = RequestKind::ALL.into_iter().filter(|it| self.has_request(state, *it)).map(RequestKind::name);
            let read = EventColumn::ALL.into_iter().filter(|it| self.has_event(state, *it)).map(EventColumn::name);
            let met: Vec<_> = made.chain(read).collect();
            if !met.is_empty() {
                write!(f, "\n{}: {}", state.name(), met.join(", "))?;
            }
        }
        let what = |kind: &Option<Kind>| kind.map_or_else(|| "look-up".to_owned(), |kind| format!("{kind:?}"));
        for (no, ((rule, kind), count)) in self.rules.iter().enumerate() {
            write!(f, "{}{count} {rule:?} {}", if no == 0 { "\nrules: " } else { ", " }, what(kind))?;
        }
        if self.faults == 0 { Ok(()) } else { write!(f, "\nfaults: {}", self.faults) }
    }
}

/// What the drives of a world share.
pub(super) type Covered = Arc<Mutex<Coverage>>;

pub(super) fn lock(covered: &Covered) -> MutexGuard<'_, Coverage> {
    covered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An observer that adds to the coverage of its world, from [`Node::coverage`](crate::Node::coverage). It costs time for each id.
#[derive(Clone, Debug)]
pub struct Covering {
    covered: Covered,
    /// The states before the next step.
    before: Vec<(IdKey, State)>,
}

impl Covering {
    pub(super) fn new(covered: Covered) -> Self {
        Covering { covered, before: Vec::new() }
    }

    fn request(&self, id: IdKey, request: RequestKind) {
        for (_, state) in self.before.iter().filter(|(known, _)| *known == id) {
            lock(&self.covered).requests[state.index()] |= 1 << request.index();
        }
    }

    fn event(&self, id: IdKey, event: EventColumn) {
        for (_, state) in self.before.iter().filter(|(known, _)| *known == id) {
            lock(&self.covered).events[state.index()] |= 1 << event.index();
        }
    }

    /// The deadlines of the ids that no longer wait.
    fn deadlines(&self, core: &Core) {
        for &(id, before) in &self.before {
            if operation(before).is_some() && core.state(id) != Some(before) {
                self.event(id, EventColumn::Deadline);
            }
        }
    }
}

impl Observer for Covering {
    fn step(&mut self, record: &StepRecord<'_>) {
        if let Step::Submit { id, request, .. } = &record.step {
            self.request(*id, request.request_kind());
        } else if let Step::Release { id, .. } = &record.step {
            self.request(*id, RequestKind::Release);
        } else if let Step::Event { event, .. } = &record.step {
            self.event(event.id, EventColumn::of(event.kind));
        } else if let Step::Timeout = &record.step {
            self.deadlines(record.core);
        }
        self.before.clear();
        let core = record.core;
        self.before.extend(core.ids().filter_map(|id| Some((id, core.state(id)?))));
    }

    fn sibling(&self) -> Self {
        Covering::new(Arc::clone(&self.covered))
    }
}
