//! What one side is to deliver: each event once and in order, and one end of each request that waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmid_proto::{Core, Event, EventKind, IdKey, Progress, Request, RequestKind};

use super::unreliable::Reported;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The undelivered events of each id, in order.
    events: BTreeMap<IdKey, VecDeque<Reported>>,
    /// Events that were not delivered before a later one.
    skipped: u64,
    /// Requests that wait for acks.
    open: Vec<(IdKey, RequestKind)>,
    /// Ids that were in synchronous mode, where events end requests instead of being delivered.
    sync: BTreeSet<IdKey>,
}

impl Ledger {
    pub(super) fn reported(&mut self, event: Reported) {
        self.events.entry(event.owner).or_default().push_back(event);
    }

    pub(super) fn is_sync(&mut self, id: IdKey) {
        self.sync.insert(id);
    }

    pub(super) fn requested(&mut self, id: IdKey, request: &Request<'_>, progress: Progress) {
        if *request == (Request::Migrate { to: None }) {
            self.is_sync(id);
        }
        // A destroy ends all other requests.
        if matches!(request, Request::Destroy | Request::DestroyNow) {
            self.open.retain(|(of, _)| *of != id);
        }
        self.open.extend((progress == Progress::WhenAcked).then_some((id, request.request_kind())));
    }

    pub(super) fn delivered(&mut self, event: &Event) {
        let owner = event.listener.unwrap_or(event.id);
        let ended = match event.kind {
            EventKind::Cm(kind) => {
                let events = self.events.entry(owner).or_default();
                let is_it = |it: &Reported| (it.id, it.kind, it.status) == (event.id, kind, event.status);
                let at = events.iter().position(is_it);
                let at = at.unwrap_or_else(|| panic!("{event:?} comes twice, too late or unasked: {events:?}"));
                self.skipped += if self.sync.contains(&owner) { 0 } else { at as u64 };
                events.drain(..=at);
                return;
            }
            EventKind::DeadlinePassed(_) => return,
            EventKind::Migrated => RequestKind::Migrate,
            EventKind::Destroyed => RequestKind::Destroy,
            EventKind::Left => RequestKind::Leave,
        };
        let at = self.open.iter().position(|&it| it == (owner, ended));
        self.open.remove(at.unwrap_or_else(|| panic!("{ended} on {owner} ends twice, or was never asked for")));
    }

    /// All events are taken and all acks given.
    pub(super) fn at_rest(&self, core: &Core) {
        assert_eq!(self.open, [], "requests that have not ended");
        let is_due = |id: &IdKey| core.state(*id).is_some() && !self.sync.contains(id);
        let alive = self.events.iter().filter(|(id, _)| is_due(id));
        let lost = self.skipped + alive.map(|(_, events)| events.len() as u64).sum::<u64>();
        let counters = core.summary().counters;
        let accounted = counters.late + counters.discarded;
        assert!(lost <= accounted, "{lost} events are lost, of which {accounted} are late or discarded");
    }
}
