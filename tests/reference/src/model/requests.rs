//! What was asked for: every request ends once, and none outlives its deadline.

use std::collections::BTreeMap;

use cmid_proto::{Core, Errno, GroupKey, IdKey, State, Time, Verb};

/// Until when something is to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) id: IdKey,
    pub(crate) verb: Verb,
    pub(crate) group: Option<GroupKey>,
    pub(crate) due: Time,
    /// Of a request of synchronous mode: it ends by result, unless the id has left that mode.
    pub(crate) sync: bool,
}

/// The open requests of one core.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Calls are made for it; one of them ends it.
    called: BTreeMap<IdKey, Verb>,
    /// It waits for acks and ends by event.
    waiting: Vec<(IdKey, Verb)>,
    deadlines: Vec<Deadline>,
    /// What an accepted request has replaced, should the device refuse it.
    replaced: BTreeMap<IdKey, Deadline>,
    /// Deadlines of which the application must be told.
    passed: Vec<Deadline>,
}

/// What is open of an id between two cores.
#[derive(Debug)]
pub(crate) struct Travelling {
    deadlines: Vec<Deadline>,
    passed: Vec<Deadline>,
    waiting: Vec<Verb>,
}

/// The state in which a request waits for its event.
fn waits_in(verb: Verb, state: Option<State>) -> bool {
    match verb {
        Verb::ResolveAddr => state == Some(State::AddrResolving),
        Verb::ResolveRoute => state == Some(State::RouteResolving),
        Verb::Connect => matches!(state, Some(State::Connecting | State::Asking)),
        Verb::Accept => state == Some(State::Accepting),
        Verb::Disconnect => state == Some(State::Disconnecting),
        Verb::Teardown => state == Some(State::Closing),
        _ => false,
    }
}

impl Requests {
    /// A request was accepted. `called`: a call was made for it.
    pub(crate) fn accepted(&mut self, core: &Core, asked: Deadline, called: bool) {
        let Deadline { id, verb, .. } = asked;
        let asked = Deadline { sync: core.sync_open(id) == Some(verb), ..asked };
        if verb == Verb::Destroy {
            self.end_all(id);
        }
        let waits = core.waits_for_acks(id, verb) && !called;
        let ends_at_once = matches!(verb, Verb::AttachQp | Verb::DetachQp | Verb::GetRequest);
        if waits {
            let untold = verb == Verb::Migrate && self.waiting.contains(&(id, verb));
            assert!(!untold, "{verb} on {id} waits, and the end of the one before is untold");
            self.waiting.push((id, verb));
        } else if called {
            let before = self.called.insert(id, verb);
            assert_eq!(before, None, "{verb} on {id} while another is under way");
        } else {
            assert!(ends_at_once || verb == Verb::Migrate, "{verb} on {id} has come to nothing");
        }
        let counts = match verb {
            Verb::Migrate | Verb::Destroy => waits,
            Verb::GetRequest => core.sync_open(id) == Some(verb),
            Verb::Join => true,
            verb => waits_in(verb, core.state(id)),
        };
        if counts {
            if is_operation(verb)
                && let Some(at) = self.deadlines.iter().position(|other| other.id == id && is_operation(other.verb))
            {
                let before = self.deadlines.swap_remove(at);
                self.replaced.insert(id, before);
            }
            self.deadlines.push(asked);
        }
    }

    /// A destroy ends all other requests of its id: no end of them may follow.
    fn end_all(&mut self, id: IdKey) {
        self.called.remove(&id);
        self.waiting.retain(|(of, _)| *of != id);
        self.forget(|deadline| deadline.id == id);
    }

    /// The core says that a request has ended by a call.
    pub(crate) fn ended(&mut self, core: &Core, id: IdKey, failed: bool) {
        if let Some(verb) = self.called.remove(&id) {
            if failed && let Some(at) = self.deadlines.iter().rposition(|it| it.id == id && it.verb == verb) {
                self.deadlines.swap_remove(at);
                self.deadlines.extend(self.replaced.remove(&id));
            }
            self.replaced.remove(&id);
        } else {
            // A destroy ends with the creation that it overtook, if that fails.
            let ended = core.state(id).is_none() && self.take_waiting(id, Verb::Destroy);
            assert!(ended, "something on {id} has ended twice");
        }
    }

    /// The core says so by event.
    pub(crate) fn ended_by_event(&mut self, id: IdKey, verb: Verb) {
        assert!(self.take_waiting(id, verb), "{verb} on {id} has ended twice, or was never asked for");
    }

    fn take_waiting(&mut self, id: IdKey, verb: Verb) -> bool {
        let at = self.waiting.iter().position(|&it| it == (id, verb));
        at.map(|at| self.waiting.swap_remove(at)).is_some()
    }

    /// The core has begun what waited for acks: its deadline is over.
    pub(crate) fn begun(&mut self, id: IdKey, verb: Verb) {
        self.forget(|deadline| deadline.id == id && deadline.verb == verb);
    }

    /// A membership is left, or its join was answered.
    pub(crate) fn answered(&mut self, group: GroupKey) {
        self.forget(|deadline| deadline.group == Some(group));
        // What is undelivered of a membership goes with it.
        self.passed.retain(|deadline| deadline.group != Some(group));
    }

    /// No join of the id will be answered any more.
    pub(crate) fn removed(&mut self, id: IdKey) {
        self.forget(|deadline| deadline.id == id && deadline.verb == Verb::Join);
    }

    fn forget(&mut self, which: impl Fn(&Deadline) -> bool) {
        self.deadlines.retain(|deadline| !which(deadline));
    }

    /// Drops what is over by itself. Ids that are gone leave nothing open.
    pub(crate) fn follow(&mut self, core: &Core) {
        self.deadlines.retain(|deadline| is_pending(core, deadline));
        self.passed.retain(|deadline| core.state(deadline.id).is_some_and(|state| state != State::Destroying));
        if let Some((id, verb)) = self.called.iter().find(|(id, _)| core.state(**id).is_none()) {
            panic!("{id} is gone and its {verb} has not ended");
        }
    }

    /// The nearest deadline.
    pub(crate) fn nearest(&self) -> Option<Time> {
        self.deadlines.iter().map(|deadline| deadline.due).filter(|&due| due != Time::NEVER).min()
    }

    /// The core was told the time; `told` were the requests that synchronous mode tells the end of by result. Returns what
    /// has passed.
    pub(crate) fn pass(&mut self, core: &Core, now: Time, told: &[Deadline]) -> Vec<Deadline> {
        let (passed, left): (Vec<_>, _) = self.deadlines.drain(..).partition(|deadline| deadline.due <= now);
        self.deadlines = left;
        for deadline in &passed {
            let lingers = deadline.verb != Verb::Join && is_pending(core, deadline);
            assert!(!lingers, "{deadline:?} has passed at {now:?} and nothing has happened");
        }
        for deadline in told {
            let result = core.sync_result(deadline.id);
            assert_eq!(result, Some(Err(Errno::ETIMEDOUT)), "{deadline:?} has passed at {now:?}");
        }
        let by_event = |it: &&Deadline| (is_operation(it.verb) || it.verb == Verb::Join) && !told.contains(it);
        self.passed.extend(passed.iter().filter(by_event));
        passed
    }

    /// What synchronous mode will tell by result if it passes: of ids that do not move.
    pub(crate) fn synchronous(&self, core: &Core, now: Time) -> Vec<Deadline> {
        let open = |it: &&Deadline| it.sync && it.due <= now && core.sync_open(it.id) == Some(it.verb);
        self.deadlines.iter().filter(open).copied().collect()
    }

    /// An id was to be moved. If it was, what was open in synchronous mode ends by event; if not, what has passed meanwhile
    /// has ended by result.
    pub(crate) fn moved(&mut self, id: IdKey, done: bool) {
        if done {
            let all = self.deadlines.iter_mut().chain(&mut self.passed);
            all.filter(|it| it.id == id).for_each(|it| it.sync = false);
        } else {
            self.passed.retain(|it| it.id != id || !it.sync);
        }
    }

    /// The application is told that a deadline has passed: `of` an id and request, for a join of this group.
    pub(crate) fn told_of(&mut self, id: IdKey, verb: Verb, group: Option<GroupKey>) {
        let at = self.passed.iter().position(|it| (it.id, it.verb, it.group) == (id, verb, group));
        assert!(at.is_some(), "the deadline of {verb} on {id} is said to have passed");
        at.map(|at| self.passed.swap_remove(at));
    }

    /// Takes what is open of an id that goes to another core, and what is said of it in events that go along.
    pub(crate) fn release(&mut self, id: IdKey) -> Travelling {
        assert!(!self.called.contains_key(&id), "{id} is released while a call is under way");
        let (deadlines, left) = self.deadlines.drain(..).partition(|deadline| deadline.id == id);
        let (passed, told) = self.passed.drain(..).partition(|deadline| deadline.id == id);
        let (waiting, stay): (Vec<_>, _) = self.waiting.drain(..).partition(|(of, _)| *of == id);
        (self.deadlines, self.passed, self.waiting) = (left, told, stay);
        Travelling { deadlines, passed, waiting: waiting.into_iter().map(|(_, verb)| verb).collect() }
    }

    pub(crate) fn adopt(&mut self, id: IdKey, gone: Travelling) {
        let renamed = |deadline| Deadline { id, ..deadline };
        self.deadlines.extend(gone.deadlines.into_iter().map(renamed));
        self.passed.extend(gone.passed.into_iter().map(renamed));
        self.waiting.extend(gone.waiting.into_iter().map(|verb| (id, verb)));
    }

    /// Everything has ended.
    pub(crate) fn assert_none_open(&self) {
        assert!(self.called.is_empty() && self.waiting.is_empty(), "never ended: {:?} {:?}", self.called, self.waiting);
        assert!(self.deadlines.is_empty() && self.passed.is_empty(), "never told: {:?}", self.passed);
    }

    /// With nothing under way, every deadline that has passed was told of.
    pub(crate) fn assert_told(&self) {
        assert!(self.passed.is_empty(), "never told: {:?}", self.passed);
    }
}

fn is_operation(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::ResolveAddr | Verb::ResolveRoute | Verb::Connect | Verb::Accept | Verb::Disconnect | Verb::Teardown
    )
}

fn is_pending(core: &Core, deadline: &Deadline) -> bool {
    match deadline.verb {
        Verb::Migrate | Verb::Destroy => core.waits_for_acks(deadline.id, deadline.verb),
        Verb::GetRequest => core.sync_open(deadline.id) == Some(Verb::GetRequest),
        Verb::Join => core.state(deadline.id).is_some(),
        verb => waits_in(verb, core.state(deadline.id)),
    }
}
