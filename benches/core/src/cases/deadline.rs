//! Deadlines, among as many as there are ids.

use cmid_proto::{CmEvent, EventKind, IdKey, RawEvent, Request, State, Time, Verb};

use super::Case;
use super::life::resolve;
use crate::level::Level;
use crate::stage::{OTHERS, Stage};

/// An id of its own, which waits longer or less long than all others.
#[derive(Debug)]
struct Probe {
    id: IdKey,
    now: Time,
}

impl Probe {
    fn new<L: Level>(stage: &mut Stage<L>) -> Self {
        // Time does not run backwards from one case to the next.
        Probe { id: stage.level.create(stage.channel), now: stage.level.now() }
    }

    /// A new one in place of the last.
    fn renew<L: Level>(&mut self, stage: &mut Stage<L>) {
        self.leave(stage);
        self.id = stage.level.create(stage.channel);
    }

    fn leave<L: Level>(&self, stage: &mut Stage<L>) {
        stage.level.ask(self.id, Request::Destroy, Time::NEVER);
    }

    /// None, before all others, after all others: the best place of a heap, and its worst.
    fn due(&self, place: usize) -> Time {
        match place {
            0 => Time::NEVER,
            1 => Time(self.now.0 + 1000),
            _ => Time(OTHERS.0 * 4),
        }
    }

    /// Whether its deadline is where it is meant to be.
    fn check<L: Level>(&self, stage: &Stage<L>, place: usize) {
        assert_eq!(stage.state(self.id), State::AddrResolving);
        let first = stage.level.core().poll_timeout().map(|(_, id)| id);
        assert_eq!(first == Some(self.id), place == 1);
    }
}

/// A request with a deadline: none, before all others, after all others.
#[derive(Debug)]
pub struct Arm<const PLACE: usize>(Probe);

impl<L: Level, const PLACE: usize> Case<L> for Arm<PLACE> {
    type Input = Time;
    type Output = ();

    fn new(stage: &mut Stage<L>) -> Self {
        Arm(Probe::new(stage))
    }

    fn prepare(&mut self, _: &mut Stage<L>) -> Time {
        self.0.due(PLACE)
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, due: Time) {
        stage.level.ask(self.0.id, resolve(), due);
    }

    fn check(&mut self, stage: &mut Stage<L>, (): ()) {
        self.0.check(stage, PLACE);
        self.0.renew(stage);
    }

    fn leave(self, stage: &mut Stage<L>) {
        self.0.leave(stage);
    }
}

/// The event that ends such a request.
#[derive(Debug)]
pub struct Cancel<const PLACE: usize>(Probe);

impl<L: Level, const PLACE: usize> Case<L> for Cancel<PLACE> {
    type Input = L::Arriving;
    type Output = EventKind;

    fn new(stage: &mut Stage<L>) -> Self {
        Cancel(Probe::new(stage))
    }

    fn prepare(&mut self, stage: &mut Stage<L>) -> L::Arriving {
        stage.level.ask(self.0.id, resolve(), self.0.due(PLACE));
        self.0.check(stage, PLACE);
        stage.level.arrive(RawEvent::new(self.0.id, CmEvent::AddrResolved))
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, raw: L::Arriving) -> EventKind {
        stage.level.tell(stage.channel, stage.channel, raw)
    }

    fn check(&mut self, stage: &mut Stage<L>, kind: EventKind) {
        assert_eq!((kind, stage.state(self.0.id)), (EventKind::Cm(CmEvent::AddrResolved), State::AddrResolved));
        assert_ne!(stage.level.core().poll_timeout().map(|(_, id)| id), Some(self.0.id));
        self.0.renew(stage);
    }

    fn leave(self, stage: &mut Stage<L>) {
        self.0.leave(stage);
    }
}

/// The first of all deadlines passes: the id has failed, and an event tells so.
#[derive(Debug)]
pub struct Fire(Probe);

impl<L: Level> Case<L> for Fire {
    type Input = Time;
    type Output = ();

    fn new(stage: &mut Stage<L>) -> Self {
        Fire(Probe::new(stage))
    }

    fn prepare(&mut self, stage: &mut Stage<L>) -> Time {
        self.0.now = self.0.due(1);
        stage.level.ask(self.0.id, resolve(), self.0.now);
        self.0.now
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, now: Time) {
        stage.level.pass(now);
    }

    fn check(&mut self, stage: &mut Stage<L>, (): ()) {
        let event = stage.level.take(stage.channel).expect("an event");
        assert_eq!((event.id, event.kind), (self.0.id, EventKind::DeadlinePassed(Verb::ResolveAddr)));
        assert_eq!(stage.state(self.0.id), State::Failed);
        self.0.renew(stage);
    }

    fn leave(self, stage: &mut Stage<L>) {
        self.0.leave(stage);
    }
}
