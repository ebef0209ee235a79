//! The observer of a drive.

use super::StepRecord;

/// Receives each step of a drive, for recording or counting. `()` observes nothing: a drive with it compiles without
/// observation. A pair is two observers, and `None` of an `Option` is none.
pub trait Observer {
    /// Called right after each step. It must not panic: the step has happened, and what follows from it would not. Drop the
    /// drive then.
    fn step(&mut self, record: &StepRecord<'_>);

    /// Returns the observer of another drive, for a driver that creates one: a listener that gives each connection its
    /// own.
    #[must_use]
    fn sibling(&self) -> Self
    where
        Self: Sized;
}

impl Observer for () {
    fn step(&mut self, _record: &StepRecord<'_>) {}

    fn sibling(&self) -> Self {}
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn step(&mut self, record: &StepRecord<'_>) {
        self.0.step(record);
        self.1.step(record);
    }

    fn sibling(&self) -> Self {
        (self.0.sibling(), self.1.sibling())
    }
}

impl<O: Observer> Observer for Option<O> {
    fn step(&mut self, record: &StepRecord<'_>) {
        if let Some(observer) = self {
            observer.step(record);
        }
    }

    fn sibling(&self) -> Self {
        self.as_ref().map(Observer::sibling)
    }
}
