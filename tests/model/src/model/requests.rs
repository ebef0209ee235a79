//! Open requests: every request ends once, and before its deadline.

use std::collections::BTreeSet;

use cmid_proto::info::WaitsFor;
use cmid_proto::{Core, Errno, GroupKey, IdKey, RequestKind, State, Time};

/// The deadline of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) id: IdKey,
    pub(crate) request_kind: RequestKind,
    pub(crate) group: Option<GroupKey>,
    pub(crate) due: Time,
    /// A request of synchronous mode: it ends by result, unless the id has left that mode.
    pub(crate) sync: bool,
}

/// The open requests of one core.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// It waits for acks and ends by event.
    waiting: Vec<(IdKey, RequestKind)>,
    deadlines: Vec<Deadline>,
    /// Expired deadlines that must be reported to the application.
    passed: Vec<Deadline>,
    /// Ids with a DEVICE_REMOVAL that the application has taken.
    removed: BTreeSet<IdKey>,
}

/// The open deadlines of an id between two cores.
#[derive(Debug)]
pub(crate) struct Travelling {
    deadlines: Vec<Deadline>,
    passed: Vec<Deadline>,
    waiting: Vec<RequestKind>,
}

/// The state in which a request waits for its event.
fn waits_in(request_kind: RequestKind, state: Option<State>) -> bool {
    match request_kind {
        RequestKind::ResolveAddr => state == Some(State::AddrResolving),
        RequestKind::ResolveRoute => state == Some(State::RouteResolving),
        RequestKind::Connect => matches!(state, Some(State::Connecting | State::SidrReqSent)),
        RequestKind::Accept => state == Some(State::Accepting),
        RequestKind::Disconnect => state == Some(State::Disconnecting),
        RequestKind::Teardown => state == Some(State::Closing),
        _ => false,
    }
}

impl Requests {
    /// A request was made. `waits`: for acks.
    pub(crate) fn made(&mut self, core: &Core, asked: Deadline, waits: bool) {
        let Deadline { id, request_kind, .. } = asked;
        let asked = Deadline { sync: core.id_info(id).and_then(|it| it.sync_open) == Some(request_kind), ..asked };
        if request_kind == RequestKind::Destroy {
            self.end_all(id);
        }
        if waits {
            let is_known = matches!(request_kind, RequestKind::Migrate | RequestKind::Destroy | RequestKind::Leave);
            assert!(is_known, "{request_kind} on {id} waits for acks");
            let untold = request_kind == RequestKind::Migrate && self.waiting.contains(&(id, request_kind));
            assert!(!untold, "{request_kind} on {id} waits, and the end of the one before is untold");
            self.waiting.push((id, request_kind));
        }
        let counts = match request_kind {
            RequestKind::Migrate | RequestKind::Destroy => waits,
            RequestKind::GetRequest => core.id_info(id).and_then(|it| it.sync_open) == Some(request_kind),
            RequestKind::Join => true,
            request_kind => waits_in(request_kind, core.state(id)),
        };
        if counts {
            if is_operation(request_kind) {
                self.forget(|other| other.id == id && is_operation(other.request_kind));
            }
            self.deadlines.push(asked);
        }
    }

    /// A destroy ends all other requests of its id: no end of them may follow.
    pub(crate) fn end_all(&mut self, id: IdKey) {
        self.waiting.retain(|(of, _)| *of != id);
        self.passed.retain(|deadline| deadline.id != id);
        self.forget(|deadline| deadline.id == id);
    }

    /// Records that the core reports the end of a request by event.
    pub(crate) fn ended_by_event(&mut self, id: IdKey, request_kind: RequestKind) {
        assert!(self.take_waiting(id, request_kind), "{request_kind} on {id} has ended twice, or was never asked for");
    }

    fn take_waiting(&mut self, id: IdKey, request_kind: RequestKind) -> bool {
        let at = self.waiting.iter().position(|&it| it == (id, request_kind));
        at.map(|at| self.waiting.swap_remove(at)).is_some()
    }

    /// Records the start of a request that waited for acks: this ends its deadline.
    pub(crate) fn begun(&mut self, id: IdKey, request_kind: RequestKind) {
        self.forget(|deadline| deadline.id == id && deadline.request_kind == request_kind);
    }

    /// A membership is left, or its join was answered.
    pub(crate) fn answered(&mut self, group: GroupKey) {
        self.forget(|deadline| deadline.group == Some(group));
        // Undelivered events of a membership are dropped with it.
        self.passed.retain(|deadline| deadline.group != Some(group));
    }

    /// Records that joins of the id will not be answered any more.
    pub(crate) fn removed(&mut self, id: IdKey) {
        self.forget(|deadline| deadline.id == id && deadline.request_kind == RequestKind::Join);
    }

    /// Records that the application has taken a DEVICE_REMOVAL: no deadline passes after it.
    pub(crate) fn removal_is_told(&mut self, id: IdKey) {
        self.removed.insert(id);
    }

    fn forget(&mut self, which: impl Fn(&Deadline) -> bool) {
        self.deadlines.retain(|deadline| !which(deadline));
    }

    /// Drops requests that ended without a report. Removed ids leave nothing open.
    pub(crate) fn follow(&mut self, core: &Core) {
        self.deadlines.retain(|deadline| is_pending(core, deadline));
        self.passed.retain(|deadline| core.state(deadline.id).is_some_and(|state| state != State::Destroying));
    }

    /// The nearest deadline.
    pub(crate) fn nearest(&self) -> Option<Time> {
        self.deadlines.iter().map(|deadline| deadline.due).filter(|&due| due != Time::NEVER).min()
    }

    /// Handles a new time of the core; `reported` are the requests that synchronous mode ends by result. Returns the
    /// expired deadlines.
    pub(crate) fn pass(&mut self, core: &Core, now: Time, reported: &[Deadline]) -> Vec<Deadline> {
        let (passed, left): (Vec<_>, _) = self.deadlines.drain(..).partition(|deadline| deadline.due <= now);
        self.deadlines = left;
        for deadline in &passed {
            // Another call of the id may be late, and is told instead of its migration, whose end is an event.
            let is_late = core.waiting().any(|it| it == (deadline.id, WaitsFor::Call));
            let is_unseen =
                deadline.request_kind == RequestKind::Join || deadline.request_kind == RequestKind::Migrate && is_late;
            let lingers = !is_unseen && is_pending(core, deadline);
            assert!(!lingers, "{deadline:?} has passed at {now:?} and nothing has happened");
        }
        for deadline in reported {
            let result = core.sync_result(deadline.id);
            assert_eq!(result, Some(Err(Errno::ETIMEDOUT)), "{deadline:?} has passed at {now:?}");
        }
        let by_event = |it: &&Deadline| {
            (is_operation(it.request_kind) || it.request_kind == RequestKind::Join) && !reported.contains(it)
        };
        self.passed.extend(passed.iter().filter(by_event));
        passed
    }

    /// The requests that synchronous mode ends by result at this time.
    pub(crate) fn synchronous(&self, core: &Core, now: Time) -> Vec<Deadline> {
        let open = |it: &&Deadline| {
            it.sync && it.due <= now && core.id_info(it.id).and_then(|it| it.sync_open) == Some(it.request_kind)
        };
        self.deadlines.iter().filter(open).copied().collect()
    }

    /// The id has moved: requests of synchronous mode end by event.
    pub(crate) fn moved(&mut self, id: IdKey) {
        let all = self.deadlines.iter_mut().chain(&mut self.passed);
        all.filter(|it| it.id == id).for_each(|it| it.sync = false);
    }

    /// Records that the application gets a passed deadline: `of` an id and request, for a join of this group.
    pub(crate) fn told_of(&mut self, id: IdKey, request_kind: RequestKind, group: Option<GroupKey>) {
        let at = self.passed.iter().position(|it| (it.id, it.request_kind, it.group) == (id, request_kind, group));
        assert!(at.is_some(), "the deadline of {request_kind} on {id} is said to have passed");
        assert!(!self.removed.contains(&id), "the deadline of {request_kind} on {id} passes after the removal");
        at.map(|at| self.passed.swap_remove(at));
    }

    /// Takes out the open requests of an id that is released, and its passed deadlines with undelivered events.
    pub(crate) fn release(&mut self, id: IdKey) -> Travelling {
        let (deadlines, left) = self.deadlines.drain(..).partition(|deadline| deadline.id == id);
        let (passed, reported) = self.passed.drain(..).partition(|deadline| deadline.id == id);
        let (waiting, stay): (Vec<_>, _) = self.waiting.drain(..).partition(|(of, _)| *of == id);
        (self.deadlines, self.passed, self.waiting) = (left, reported, stay);
        Travelling { deadlines, passed, waiting: waiting.into_iter().map(|(_, request_kind)| request_kind).collect() }
    }

    pub(crate) fn adopt(&mut self, id: IdKey, gone: Travelling) {
        let renamed = |deadline| Deadline { id, ..deadline };
        self.deadlines.extend(gone.deadlines.into_iter().map(renamed));
        self.passed.extend(gone.passed.into_iter().map(renamed));
        self.waiting.extend(gone.waiting.into_iter().map(|request_kind| (id, request_kind)));
    }

    /// Asserts that no request is open.
    pub(crate) fn assert_none_open(&self) {
        assert!(self.waiting.is_empty(), "never ended: {:?}", self.waiting);
        assert!(self.deadlines.is_empty() && self.passed.is_empty(), "never reported: {:?}", self.passed);
    }

    /// Asserts that every expired deadline was reported; requires that nothing is under way.
    pub(crate) fn assert_told(&self) {
        assert!(self.passed.is_empty(), "never reported: {:?}", self.passed);
    }
}

fn is_operation(request_kind: RequestKind) -> bool {
    matches!(
        request_kind,
        RequestKind::ResolveAddr
            | RequestKind::ResolveRoute
            | RequestKind::Connect
            | RequestKind::Accept
            | RequestKind::Disconnect
            | RequestKind::Teardown
    )
}

fn is_pending(core: &Core, deadline: &Deadline) -> bool {
    match deadline.request_kind {
        // A migration has its deadline until its call is made; nothing ends a destroy that has its acks.
        RequestKind::Migrate => {
            let waits = [WaitsFor::Acks(RequestKind::Migrate), WaitsFor::Call];
            core.waiting().any(|(id, it)| id == deadline.id && waits.contains(&it))
        }
        RequestKind::Destroy => {
            let owes = core.id_info(deadline.id).is_some_and(|it| it.owed > 0);
            owes && core.state(deadline.id) == Some(State::Destroying)
        }
        RequestKind::GetRequest => {
            core.id_info(deadline.id).and_then(|it| it.sync_open) == Some(RequestKind::GetRequest)
        }
        RequestKind::Join => core.state(deadline.id).is_some(),
        request_kind => waits_in(request_kind, core.state(deadline.id)),
    }
}
