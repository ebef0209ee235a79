//! Deadlines, with one for each of the other ids.

use cmid_proto::{CmEvent, EventKind, IdKey, RawEvent, Request, RequestKind, State, Time};

use super::case::Case;
use crate::level::Level;
use crate::prepared::Prepared;
use crate::requests::resolve;

/// An id with a deadline before all others.
#[derive(Debug)]
struct Probe {
    id: IdKey,
    now: Time,
}

impl Probe {
    fn new<L: Level>(prepared: &mut Prepared<L>) -> Self {
        // Time must not run backwards from one case to the next.
        Probe { id: prepared.level.create(prepared.channel), now: prepared.level.now() }
    }

    /// Replaces the id by a new one.
    fn renew<L: Level>(&mut self, prepared: &mut Prepared<L>) {
        self.leave(prepared);
        self.id = prepared.level.create(prepared.channel);
    }

    fn leave<L: Level>(&self, prepared: &mut Prepared<L>) {
        prepared.level.request(self.id, Request::Destroy, Time::NEVER);
    }

    /// No deadline, or one before all others.
    fn due(&self, place: usize) -> Time {
        if place == 0 { Time::NEVER } else { Time(self.now.0 + 1000) }
    }

    /// Checks that the deadline is at the intended place.
    fn check<L: Level>(&self, prepared: &Prepared<L>, place: usize) {
        assert_eq!(prepared.state(self.id), State::AddrResolving);
        let first = prepared.level.core().poll_timeout().map(|(_, id)| id);
        assert_eq!(first == Some(self.id), place == 1);
    }
}

/// A request with a deadline: none, or one before all others.
#[derive(Debug)]
pub struct Arm<const PLACE: usize>(Probe);

impl<L: Level, const PLACE: usize> Case<L> for Arm<PLACE> {
    type Input = Time;
    type Output = ();

    fn new(prepared: &mut Prepared<L>) -> Self {
        Arm(Probe::new(prepared))
    }

    fn prepare(&mut self, _: &mut Prepared<L>) -> Time {
        self.0.due(PLACE)
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, due: Time) {
        prepared.level.request(self.0.id, resolve(), due);
    }

    fn check(&mut self, prepared: &mut Prepared<L>, (): ()) {
        self.0.check(prepared, PLACE);
        self.0.renew(prepared);
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        self.0.leave(prepared);
    }
}

/// The event that ends a request with such a deadline.
#[derive(Debug)]
pub struct Cancel<const PLACE: usize>(Probe);

impl<L: Level, const PLACE: usize> Case<L> for Cancel<PLACE> {
    type Input = L::Arriving;
    type Output = EventKind;

    fn new(prepared: &mut Prepared<L>) -> Self {
        Cancel(Probe::new(prepared))
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> L::Arriving {
        prepared.level.request(self.0.id, resolve(), self.0.due(PLACE));
        self.0.check(prepared, PLACE);
        prepared.level.prepare_event(RawEvent::new(self.0.id, CmEvent::AddrResolved))
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, raw: L::Arriving) -> EventKind {
        prepared.level.deliver(prepared.channel, prepared.channel, raw)
    }

    fn check(&mut self, prepared: &mut Prepared<L>, kind: EventKind) {
        assert_eq!((kind, prepared.state(self.0.id)), (EventKind::Cm(CmEvent::AddrResolved), State::AddrResolved));
        assert_ne!(prepared.level.core().poll_timeout().map(|(_, id)| id), Some(self.0.id));
        self.0.renew(prepared);
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        self.0.leave(prepared);
    }
}

/// The first of all deadlines passes: the id has failed, and an event reports it.
#[derive(Debug)]
pub struct Fire(Probe);

impl<L: Level> Case<L> for Fire {
    type Input = Time;
    type Output = ();

    fn new(prepared: &mut Prepared<L>) -> Self {
        Fire(Probe::new(prepared))
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> Time {
        self.0.now = self.0.due(1);
        prepared.level.request(self.0.id, resolve(), self.0.now);
        self.0.now
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, now: Time) {
        prepared.level.pass(now);
    }

    fn check(&mut self, prepared: &mut Prepared<L>, (): ()) {
        let event = prepared.level.take(prepared.channel).expect("an event");
        assert_eq!((event.id, event.kind), (self.0.id, EventKind::DeadlinePassed(RequestKind::ResolveAddr)));
        assert_eq!(prepared.state(self.0.id), State::Failed);
        self.0.renew(prepared);
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        self.0.leave(prepared);
    }
}
