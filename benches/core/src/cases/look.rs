//! Nothing to do.

use super::Case;
use crate::level::Level;
use crate::stage::Stage;

/// Everything that can be polled is polled once, and there is nothing.
#[derive(Debug)]
pub struct Look;

impl<L: Level> Case<L> for Look {
    type Input = ();
    type Output = bool;

    fn new(_: &mut Stage<L>) -> Self {
        Look
    }

    fn prepare(&mut self, _: &mut Stage<L>) {}

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, (): ()) -> bool {
        stage.level.look(stage.channel)
    }

    fn check(&mut self, _: &mut Stage<L>, found: bool) {
        assert!(!found, "there was nothing to do");
    }
}

/// One poll, for an event.
#[derive(Debug)]
pub struct Poll;

impl<L: Level> Case<L> for Poll {
    type Input = ();
    type Output = bool;

    fn new(_: &mut Stage<L>) -> Self {
        Poll
    }

    fn prepare(&mut self, _: &mut Stage<L>) {}

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, (): ()) -> bool {
        stage.level.take(stage.channel).is_some()
    }

    fn check(&mut self, _: &mut Stage<L>, found: bool) {
        assert!(!found, "there was no event");
    }
}

/// What measuring costs by itself.
#[derive(Debug)]
pub struct Nothing;

impl<L: Level> Case<L> for Nothing {
    type Input = ();
    type Output = ();

    fn new(_: &mut Stage<L>) -> Self {
        Nothing
    }

    fn prepare(&mut self, _: &mut Stage<L>) {}

    #[inline(always)]
    fn step(&mut self, _: &mut Stage<L>, (): ()) {
        // Or there would be no call at all.
        std::hint::black_box(());
    }

    fn check(&mut self, _: &mut Stage<L>, (): ()) {}
}
