//! The expected state of one side, derived from its requests and its events.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::info::WaitsFor;
use cmid_proto::{
    AckToken, Call, ChannelKey, CmEvent, Core, Event, EventKind, Fault, IdKey, Outcome, Request, RequestKind, State,
};

use crate::host::serial;

#[derive(Default)]
struct Known {
    /// The channel that its events are delivered on; `None` in synchronous mode.
    home: Option<ChannelKey>,
    /// Requests that have not ended.
    open: u32,
    /// The targets of migrations that have not ended.
    moving: Vec<Option<ChannelKey>>,
    /// Acks that are owed.
    owed: u32,
    /// The number of the last event that was delivered.
    last: u64,
    destroying: bool,
    listens: bool,
    /// A destroy was requested: undelivered events are discarded, even if it fails.
    discarded: bool,
    /// The acks were given up, and the ack tokens are refused.
    waived: bool,
}

pub(crate) struct Ledger {
    /// Whether device calls fail only for a reason of the kernel.
    pub(crate) strict: bool,
    pub(crate) channels: Vec<ChannelKey>,
    known: BTreeMap<IdKey, Known>,
    gone: BTreeSet<IdKey>,
    pub(crate) ack_tokens: Vec<(AckToken, IdKey)>,
    /// The numbers of the events that were delivered.
    delivered: BTreeSet<u64>,
    /// Whether an id has been in synchronous mode, where events end requests instead of being delivered.
    sync: bool,
}

impl Ledger {
    pub(crate) fn new(strict: bool) -> Self {
        Ledger {
            strict,
            channels: Vec::new(),
            known: BTreeMap::new(),
            gone: BTreeSet::new(),
            ack_tokens: Vec::new(),
            delivered: BTreeSet::new(),
            sync: false,
        }
    }

    pub(crate) fn opened(&mut self, channel: ChannelKey) {
        self.channels.push(channel);
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = IdKey> + '_ {
        self.known.keys().copied()
    }

    /// `counted`: the end of the creation is still to be counted.
    pub(crate) fn created(&mut self, id: IdKey, home: Option<ChannelKey>) {
        self.sync |= home.is_none();
        let known = Known { home, ..Known::default() };
        assert!(self.known.insert(id, known).is_none() && !self.gone.contains(&id), "{id} is a key used twice");
    }

    /// A request was accepted; `ended` if it has already ended.
    pub(crate) fn requested(&mut self, id: IdKey, request: &Request<'_>, ended: bool, before: &Core) {
        assert!(!self.gone.contains(&id), "a request on {id}, which is gone, is taken");
        // The id of an untaken request is recorded only in the core.
        let known = self.known.entry(id).or_default();
        match *request {
            Request::Destroy | Request::DestroyNow => {
                if *request == Request::DestroyNow {
                    (known.owed, known.waived) = (0, true);
                }
                (known.open, known.destroying, known.discarded) = (1, true, true);
                known.moving.clear();
            }
            Request::Migrate { to } => {
                self.sync |= to.is_none();
                known.open += 1;
                known.moving.push(to);
                // A listener migrates without the device.
                let is_bookkeeping = known.listens && before.state(id) != Some(State::Removed);
                if !ended && is_bookkeeping && known.owed == 0 {
                    return self.ended(id);
                }
            }
            Request::AttachQp | Request::DetachQp | Request::GetRequest => return,
            _ => known.open += 1,
        }
        if ended {
            self.ended(id);
        }
    }

    /// A request has failed at once.
    pub(crate) fn failed(&mut self, id: IdKey, request: &Request<'_>) {
        if let Some(known) = self.known.get_mut(&id) {
            if matches!(request, Request::Destroy | Request::DestroyNow) {
                (known.open, known.destroying, known.discarded) = (0, false, true);
                known.moving.clear();
                if *request == Request::DestroyNow {
                    (known.owed, known.waived) = (0, true);
                }
            }
        }
    }

    /// A request of an id has ended, by the outcome of its call or by event.
    pub(crate) fn ended(&mut self, id: IdKey) {
        let Some(known) = self.known.get_mut(&id) else { panic!("a request ends on {id}, which is gone") };
        known.open = known.open.checked_sub(1).unwrap_or_else(|| panic!("a request of {id} ends twice"));
    }

    pub(crate) fn called(&mut self, call: &Call, outcome: Outcome) {
        let Some(id) = call.id() else { return };
        let Some(known) = self.known.get_mut(&id) else { return };
        if matches!(call, Call::Destroy { .. } | Call::Migrate { .. }) {
            assert_eq!(known.owed, 0, "{} of {id} while acks are owed", call.name());
        }
        known.listens |= matches!(call, Call::Listen { .. }) && outcome.is_ok();
        if matches!(call, Call::Migrate { .. }) && outcome.is_ok() && known.open > 0 {
            if let Some(to) = known.moving.pop() {
                known.home = to;
            }
        }
    }

    pub(crate) fn delivered(&mut self, event: Event, on: ChannelKey) {
        let number = serial(&event.private_data).filter(|_| event.cm().is_some());
        let owner = event.listener.unwrap_or(event.id);
        if let Some(number) = number {
            assert!(self.delivered.insert(number), "event {number} of {owner} is delivered twice");
        }
        if event.cm() == Some(CmEvent::ConnectRequest) {
            self.created(event.id, Some(on));
        }
        // In synchronous mode a listener's request comes without an event.
        assert!(!self.gone.contains(&owner), "{} for {owner}, which is gone", event.kind);
        assert!(
            self.sync || self.known.contains_key(&owner),
            "{} for {owner}, which the model does not have",
            event.kind
        );
        let known = self.known.entry(owner).or_default();
        if let Some(number) = number {
            assert!(known.last < number, "{} of {owner} overtakes another event", event.kind);
            known.last = number;
        }
        match event.kind {
            EventKind::Cm(_) | EventKind::DeadlinePassed(_) => {
                assert!(!known.destroying, "{} for {owner}, which is destroyed", event.kind);
            }
            EventKind::Migrated => {
                assert!(!known.destroying, "a migration of {owner} ends that its destruction has ended");
                self.ended(owner);
            }
            EventKind::Left => {
                assert!(!known.destroying, "a leave of {owner} ends that its destruction has ended");
                self.ended(owner);
            }
            EventKind::Destroyed => {
                assert!(known.discarded, "{owner} is destroyed, and no request was made for that");
                self.ended(owner);
            }
        }
        if let Some(ack_token) = event.ack_token {
            assert_eq!(ack_token.owner(), owner, "the ack of {} counts for another id", event.kind);
            self.known.entry(owner).or_default().owed += 1;
            self.ack_tokens.push((ack_token, owner));
        }
    }

    pub(crate) fn some_receipt(&mut self, rng: &mut fastrand::Rng) -> Option<AckToken> {
        if self.ack_tokens.is_empty() {
            return None;
        }
        let (ack_token, owner) = self.ack_tokens.swap_remove(rng.usize(..self.ack_tokens.len()));
        if let Some(known) = self.known.get_mut(&owner).filter(|known| !known.waived) {
            known.owed -= 1;
        }
        Some(ack_token)
    }

    /// Whether the ack of a token of this id is still owed.
    pub(crate) fn owes(&self, owner: IdKey) -> bool {
        self.known.get(&owner).is_some_and(|known| !known.waived)
    }

    pub(crate) fn renamed(&mut self, old: IdKey, new: IdKey) {
        if let Some(known) = self.known.remove(&old) {
            self.gone.insert(old);
            self.known.insert(new, known);
        }
    }

    /// Asserts that the core and the ledger agree. Forgets ids that are gone.
    pub(crate) fn compare(&mut self, core: &Core) {
        let gone: Vec<_> = self.known.keys().copied().filter(|&id| core.state(id).is_none()).collect();
        for id in gone {
            // Its last event may still be undelivered.
            let known = &self.known[&id];
            if known.open == 0 {
                self.known.remove(&id);
                self.gone.insert(id);
            }
        }
        for (&id, known) in &mut self.known {
            // An id stays after a destroy that failed or gave up at its deadline.
            known.destroying &= core.state(id).is_none_or(|state| state == State::Destroying);
            if core.state(id).is_some() {
                assert_eq!(core.id_info(id).map_or(0, |it| it.owed), known.owed, "the acks that {id} owes");
            }
            for request_kind in [RequestKind::Migrate, RequestKind::Destroy] {
                assert!(
                    known.open > 0 || !core.waiting().any(|it| it == (id, WaitsFor::Acks(request_kind))),
                    "{request_kind} of {id} waits and has ended"
                );
            }
        }
    }

    /// Asserts that every request has ended, and that every event that was read was delivered or late.
    pub(crate) fn at_rest(&self, core: &Core, read: &BTreeMap<u64, IdKey>, fault: Option<Fault>) {
        for (id, known) in &self.known {
            assert_eq!(known.open, 0, "a request of {id} has not ended");
        }
        let counters = core.summary().counters;
        assert!(!self.strict || counters.faults == 0, "{} faults, such as {fault:?}", counters.faults);
        let is_due = |id: &IdKey| self.known.get(id).is_some_and(|known| !known.discarded);
        let lost = read.iter().filter(|(number, id)| is_due(id) && !self.delivered.contains(number));
        let lost: Vec<_> = lost.collect();
        let late = counters.late;
        assert!(self.sync || lost.len() as u64 <= late, "events are lost: {lost:?}, of which {late} are late");
    }

    /// Whether the kernel may fail the request for a reason of its own.
    pub(crate) fn may_fail(request: &Request<'_>) -> bool {
        matches!(
            request.request_kind(),
            RequestKind::Accept
                | RequestKind::Reject
                | RequestKind::Establish
                | RequestKind::Notify
                | RequestKind::Listen
                | RequestKind::Bind
                | RequestKind::Disconnect
        )
    }
}
