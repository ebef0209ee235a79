//! What a measured step consists of.

use crate::level::Level;
use crate::prepared::Prepared;

/// A step that is repeated. It leaves the prepared ids in the same state as before.
pub trait Case<L: Level>: Sized {
    /// The argument of a step.
    type Input;
    /// The result of a step.
    type Output;

    /// Makes what all steps share.
    fn new(prepared: &mut Prepared<L>) -> Self;

    /// Prepares a step. Not measured.
    fn prepare(&mut self, prepared: &mut Prepared<L>) -> Self::Input;

    /// The measured step.
    fn step(&mut self, prepared: &mut Prepared<L>, input: Self::Input) -> Self::Output;

    /// Panics if the step has an unexpected result. Then restores the state before it. Not measured.
    fn check(&mut self, prepared: &mut Prepared<L>, output: Self::Output);

    /// Removes what all steps share.
    fn leave(self, _: &mut Prepared<L>) {}
}
