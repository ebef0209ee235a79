//! A request, its call, its outcome.

use std::hint::black_box;

use cmid_proto::{CmOption, IdKey, Request, State, Time};

use super::Case;
use super::life::{LATER, connect, lead_to_route};
use crate::level::Level;
use crate::stage::Stage;

/// One that changes no state (`rdma_set_option`).
#[derive(Debug)]
pub struct SetOption<const IN_STEPS: bool> {
    /// Calls made before the step.
    made: u64,
}

impl<L: Level, const IN_STEPS: bool> Case<L> for SetOption<IN_STEPS> {
    type Input = IdKey;
    type Output = ();

    fn new(_: &mut Stage<L>) -> Self {
        SetOption { made: 0 }
    }

    fn prepare(&mut self, stage: &mut Stage<L>) -> IdKey {
        self.made = stage.level.made();
        stage.choose()
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, id: IdKey) {
        let request = Request::SetOption { option: CmOption::Tos(black_box(1)) };
        if IN_STEPS {
            stage.level.ask_in_steps(id, request, Time::NEVER);
        } else {
            stage.level.ask(id, request, Time::NEVER);
        }
    }

    fn check(&mut self, stage: &mut Stage<L>, (): ()) {
        assert_eq!(stage.level.made(), self.made + 1, "one call");
    }
}

/// One with private data (56 bytes), a change of state, and a deadline.
#[derive(Debug)]
pub struct Connect;

impl<L: Level> Case<L> for Connect {
    type Input = IdKey;
    type Output = IdKey;

    fn new(_: &mut Stage<L>) -> Self {
        Connect
    }

    fn prepare(&mut self, stage: &mut Stage<L>) -> IdKey {
        let id = stage.choose();
        lead_to_route(stage, id);
        id
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, id: IdKey) -> IdKey {
        stage.level.ask(id, connect(), LATER);
        id
    }

    fn check(&mut self, stage: &mut Stage<L>, id: IdKey) {
        assert_eq!((stage.state(id), stage.level.core().poll_timeout()), (State::Connecting, Some((LATER, id))));
        stage.renew(id);
    }
}
