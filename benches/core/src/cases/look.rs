//! Polls without work to do.

use super::case::Case;
use crate::level::Level;
use crate::prepared::Prepared;

/// Polls every queue once. All are empty.
#[derive(Debug)]
pub struct Look;

impl<L: Level> Case<L> for Look {
    type Input = ();
    type Output = bool;

    fn new(_: &mut Prepared<L>) -> Self {
        Look
    }

    fn prepare(&mut self, _: &mut Prepared<L>) {}

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, (): ()) -> bool {
        prepared.level.look(prepared.channel)
    }

    fn check(&mut self, _: &mut Prepared<L>, found: bool) {
        assert!(!found, "there was nothing to do");
    }
}

/// The cost of the measurement itself.
#[derive(Debug)]
pub struct Nothing;

impl<L: Level> Case<L> for Nothing {
    type Input = ();
    type Output = ();

    fn new(_: &mut Prepared<L>) -> Self {
        Nothing
    }

    fn prepare(&mut self, _: &mut Prepared<L>) {}

    #[inline(always)]
    fn step(&mut self, _: &mut Prepared<L>, (): ()) {
        // Prevents the removal of the call.
        std::hint::black_box(());
    }

    fn check(&mut self, _: &mut Prepared<L>, (): ()) {}
}
