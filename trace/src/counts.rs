//! Counters by event, request, refusal, failure and deadline.

use std::collections::HashMap;
use std::fmt;
use std::mem::discriminant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmid_proto::drive::StepRecord;
use cmid_proto::{CmEvent, Core, Errno, Event, EventKind, IdKey, Observer, Refused, RequestKind, Step};

use crate::parts::{Parts, Problem};

/// The number of known types of events, and one for all others.
const EVENTS: usize = CmEvent::ALL.len() + 1;

/// Counters of one or several drives. They only grow. Any thread can read them.
///
/// ```
/// use cmid_proto::{Drive, Limits, Request, RequestKind, Time};
/// use cmid_trace::{Counting, Counts};
/// use std::sync::Arc;
///
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let device = fabric.host(&["10.0.0.1".parse()?]).device();
/// let counts = Arc::new(Counts::default());
/// // Or `observed` of a driver of io-mio, io-epoll, io-blocking.
/// let mut drive = Drive::with(device, (), Counting::new(Arc::clone(&counts)), Limits::SINGLE);
///
/// let id = drive.create_id(None, cmid_proto::PortSpace::Tcp)?;
/// drive.establish(id).unwrap_err();
/// let (refused, times) = counts.refusals()[0];
/// assert_eq!((refused.to_string().as_str(), times), ("establish on id0 while idle: not in this state", 1));
/// assert_eq!(counts.to_string(), "refused: 1 establish (not in this state)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Counts {
    events: [AtomicU64; EVENTS],
    requests: [AtomicU64; RequestKind::COUNT],
    deadlines: [AtomicU64; RequestKind::COUNT],
    /// At most one for each kind of request and reason.
    refusals: Mutex<Vec<(Refused, u64)>>,
    /// At most one for each name of a call.
    failures: Mutex<Vec<(&'static str, u64)>>,
}

impl Counts {
    /// Returns the number of events of a type that the device has reported, late ones included. All unknown types
    /// count together.
    #[must_use]
    pub fn events(&self, kind: CmEvent) -> u64 {
        read(&self.events[index(kind)])
    }

    /// Returns the number of requests of a kind that were not refused.
    #[must_use]
    pub fn requests(&self, kind: RequestKind) -> u64 {
        read(&self.requests[kind.index()])
    }

    /// Returns the number of requests of a kind that ended at their deadline. A request counts when its event is
    /// delivered; in synchronous mode, when it ends.
    #[must_use]
    pub fn deadlines(&self, kind: RequestKind) -> u64 {
        read(&self.deadlines[kind.index()])
    }

    /// Returns the refusals: the first one of each kind of request and reason, and their number.
    #[must_use]
    pub fn refusals(&self) -> Vec<(Refused, u64)> {
        lock(&self.refusals).clone()
    }

    /// Returns the device calls that failed, by [name](cmid_proto::Call::name), and their numbers.
    #[must_use]
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        lock(&self.failures).clone()
    }
}

/// `events: 2 ESTABLISHED; requests: 2 connect; refused: 1 establish (not in this state); failed: 1 bind_addr;
/// deadlines: 1 connect`. Numbers that are 0 are left out.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = CmEvent::ALL.iter().map(|kind| kind.name()).chain(["others"]);
        let refusals = self.refusals().into_iter().map(|(refused, times)| (text(&refused), times));
        let failures = self.failures().into_iter().map(|(call, times)| (call.to_owned(), times));
        let lists = [
            ("events", named(kinds, &self.events)),
            ("requests", named(RequestKind::ALL.map(RequestKind::name), &self.requests)),
            ("refused", refusals.collect()),
            ("failed", failures.collect()),
            ("deadlines", named(RequestKind::ALL.map(RequestKind::name), &self.deadlines)),
        ];
        let mut first = true;
        for (name, numbers) in lists.iter().filter(|(_, numbers)| !numbers.is_empty()) {
            let words: Vec<_> = numbers.iter().map(|(what, number)| format!("{number} {what}")).collect();
            write!(f, "{}{name}: {}", if first { "" } else { "; " }, words.join(", "))?;
            first = false;
        }
        Ok(())
    }
}

/// Returns the numbers above 0 with their names.
fn named(names: impl IntoIterator<Item = &'static str>, counters: &[AtomicU64]) -> Vec<(String, u64)> {
    let numbers = names.into_iter().zip(counters).map(|(name, counter)| (name.to_owned(), read(counter)));
    numbers.filter(|&(_, number)| number > 0).collect()
}

/// A refusal without its key.
fn text(refused: &Refused) -> String {
    if let Refused::Request { request, reason, .. } = refused {
        format!("{request} ({reason})")
    } else if let Refused::NoSuchId { request, .. } = refused {
        format!("{request} (there is no such id)")
    } else {
        format!("({refused})")
    }
}

/// Counts the steps of a drive.
#[derive(Debug)]
pub struct Counting {
    counts: Arc<Counts>,
    /// Requests of synchronous mode that may be open. They end at a deadline without an event.
    open: HashMap<IdKey, RequestKind>,
}

impl Counting {
    /// Creates an observer that counts in `counts`.
    #[must_use]
    pub fn new(counts: Arc<Counts>) -> Self {
        Counting { counts, open: HashMap::new() }
    }

    /// Records an open request of synchronous mode.
    fn note_open(&mut self, core: &Core, id: IdKey) {
        if let Some(request) = core.id_info(id).and_then(|it| it.sync_open) {
            self.open.insert(id, request);
        } else if !self.open.is_empty() {
            self.open.remove(&id);
        }
    }

    /// Counts the requests of synchronous mode that a deadline has ended.
    fn count_expired(&mut self, core: &Core) {
        let counts = &self.counts;
        self.open.retain(|&id, &mut request| {
            let is_expired = core.sync_result(id) == Some(Err(Errno::ETIMEDOUT)) && core.sync_event(id).is_none();
            if is_expired {
                add(&counts.deadlines[request.index()]);
            }
            core.id_info(id).and_then(|it| it.sync_open).is_some()
        });
    }

    fn count_delivered(&self, event: &Event) {
        let expired = match event.kind {
            EventKind::DeadlinePassed(request) => request,
            EventKind::Migrated if event.status == -Errno::ETIMEDOUT.0 => RequestKind::Migrate,
            EventKind::Destroyed if event.status == -Errno::ETIMEDOUT.0 => RequestKind::Destroy,
            EventKind::Migrated | EventKind::Destroyed | EventKind::Left | EventKind::Cm(_) => return,
        };
        add(&self.counts.deadlines[expired.index()]);
    }
}

impl Observer for Counting {
    fn step(&mut self, record: &StepRecord<'_>) {
        let core = record.core;
        let Parts { id, request, problem, .. } = Parts::of(&record.step);
        if let Some(Problem::Refused(refused)) = problem {
            return count(&self.counts.refusals, refused, |first| is_alike(first, &refused));
        }
        if let Some(request) = request {
            add(&self.counts.requests[request.index()]);
        }
        if let Step::Event { ref event, .. } = record.step {
            add(&self.counts.events[index(event.kind)]);
        } else if let Step::Deliver { event, .. } = record.step {
            self.count_delivered(event);
        } else if let Step::Outcome { call, outcome: Err(_), .. } = record.step {
            count(&self.counts.failures, call.name(), |&name| name == call.name());
        } else if matches!(record.step, Step::Timeout) {
            self.count_expired(core);
        }
        // The step in which a deadline ends a request of synchronous mode has no id.
        if let Some(id) = id {
            self.note_open(core, id);
        }
    }

    fn sibling(&self) -> Self {
        Counting::new(Arc::clone(&self.counts))
    }
}

/// Whether two refusals have the same kind of request and the same reason, whatever their keys.
fn is_alike(one: &Refused, other: &Refused) -> bool {
    match (one, other) {
        (
            Refused::Request { request: one, reason: one_reason, .. },
            Refused::Request { request: other, reason: other_reason, .. },
        ) => one == other && discriminant(one_reason) == discriminant(other_reason),
        (Refused::NoSuchId { request: one, .. }, Refused::NoSuchId { request: other, .. }) => one == other,
        (Refused::Full(one), Refused::Full(other)) => one == other,
        _ => discriminant(one) == discriminant(other),
    }
}

/// Adds one to the number of the entry that `is_it` finds.
fn count<T>(counts: &Mutex<Vec<(T, u64)>>, what: T, is_it: impl Fn(&T) -> bool) {
    let mut counts = lock(counts);
    match counts.iter_mut().find(|(first, _)| is_it(first)) {
        Some((_, number)) => *number += 1,
        None => counts.push((what, 1)),
    }
}

fn index(kind: CmEvent) -> usize {
    CmEvent::ALL.iter().position(|&known| known == kind).unwrap_or(EVENTS - 1)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
