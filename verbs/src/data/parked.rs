//! Registrations that nobody has any more, and that could not be ended yet: work in flight names them, a memory
//! window is bound to them, or the device did not want to.
//!
//! They are kept by their PD, and keep it in turn: a ring, which is broken when the last of them has been ended. All
//! that can hold one up (a QP, a window) has a use of the PD and comes by when it goes, so what is left in such a
//! ring for good is what the device will not let go of: then the PD could not be deallocated either, and
//! [`Pd::users`](crate::Pd::users) goes on counting what the kernel counts.

use std::sync::Mutex;

use crate::lock::lock;

/// A registration without an owner.
pub(crate) trait TryDeregister {
    /// Deregisters it. False if that cannot be done now, but perhaps later.
    fn try_deregister(&mut self) -> bool;
}

/// Those of one PD.
pub(crate) struct Parked<R: ?Sized>(Mutex<DeferredDeregistrations<R>>);

struct DeferredDeregistrations<R: ?Sized> {
    waiting: Vec<Box<R>>,
    /// Counts what has gone that may have held one up.
    released: u64,
}

impl<R: TryDeregister + ?Sized> Parked<R> {
    pub(crate) fn new() -> Self {
        Parked(Mutex::new(DeferredDeregistrations { waiting: Vec::new(), released: 0 }))
    }

    /// Ends a registration, or keeps it until that can be done.
    ///
    /// None is forgotten that nothing holds up any more. Something that goes does so first, and calls
    /// [`Parked::released`] then. If that finds the registration here, it tries again. If not, it has counted before
    /// the registration was put here, which is noticed, and it is tried again, after that thing has gone. So the loop
    /// goes round once for each thing that goes meanwhile.
    pub(crate) fn end(&self, mut registration: Box<R>) {
        let mut released = lock(&self.0).released;
        while !registration.try_deregister() {
            let mut deferred = lock(&self.0);
            if deferred.released == released {
                deferred.waiting.push(registration);
                return;
            }
            released = deferred.released;
        }
    }

    /// Ends what can be ended by now. Costs next to nothing if there is nothing here.
    pub(crate) fn retry(&self) {
        let waiting = lock(&self.0).take();
        if let Some(waiting) = waiting {
            self.end_all(waiting);
        }
    }

    /// Something has gone that may have held one up.
    #[inline]
    pub(crate) fn released(&self) {
        let mut deferred = lock(&self.0);
        deferred.released = deferred.released.wrapping_add(1);
        let waiting = deferred.take();
        drop(deferred);
        if let Some(waiting) = waiting {
            self.end_all(waiting);
        }
    }

    #[cold]
    fn end_all(&self, waiting: Vec<Box<R>>) {
        for registration in waiting {
            self.end(registration);
        }
    }
}

impl<R: ?Sized> DeferredDeregistrations<R> {
    /// Those that wait; `None` is the usual case.
    #[inline]
    fn take(&mut self) -> Option<Vec<Box<R>>> {
        if self.waiting.is_empty() { None } else { Some(core::mem::take(&mut self.waiting)) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Held up by something that goes after so many tries.
    struct Held<'a> {
        by: &'a Cell<u32>,
        parked: &'a Parked<Held<'a>>,
        tries: u32,
    }

    impl TryDeregister for Held<'_> {
        fn try_deregister(&mut self) -> bool {
            self.tries += 1;
            let held = self.by.get() > 0;
            if self.by.get() == self.tries {
                // It goes right after this was tried, before it can be put anywhere.
                self.by.set(0);
                self.parked.released();
            }
            !held
        }
    }

    fn waiting(parked: &Parked<Held<'_>>) -> usize {
        lock(&parked.0).waiting.len()
    }

    #[test]
    fn it_waits_for_what_holds_it_up() {
        let (by, other, parked) = (Cell::new(u32::MAX), Cell::new(u32::MAX), Parked::new());
        parked.end(Box::new(Held { by: &by, parked: &parked, tries: 0 }));
        parked.end(Box::new(Held { by: &other, parked: &parked, tries: 0 }));
        parked.retry();
        assert_eq!(waiting(&parked), 2);
        by.set(0);
        parked.released();
        assert_eq!(waiting(&parked), 1);
        // What passes by itself is found by whoever comes by.
        other.set(0);
        parked.retry();
        assert_eq!(waiting(&parked), 0);
    }

    #[test]
    fn nothing_goes_unnoticed_between_trying_and_waiting() {
        let (by, parked) = (Cell::new(1), Parked::new());
        parked.end(Box::new(Held { by: &by, parked: &parked, tries: 0 }));
        assert_eq!(waiting(&parked), 0, "when it was put there");
        by.set(3);
        parked.end(Box::new(Held { by: &by, parked: &parked, tries: 0 }));
        assert_eq!(waiting(&parked), 1);
        parked.retry();
        assert_eq!((waiting(&parked), by.get()), (1, 3));
        parked.retry();
        assert_eq!((waiting(&parked), by.get()), (0, 0), "while another looked");
    }
}
