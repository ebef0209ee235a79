//! Registrations and memory windows without an owner that could not be ended yet: work in flight names them, a window is
//! bound to a registration, or `ibv_dereg_mr` failed.
//!
//! Their PD keeps them, and they keep the PD. This cycle of references ends with the last of them. A QP or window that
//! blocks a deregistration uses the PD, and calls [`Parked::released`] when it is destroyed; so does a QP that executes no more
//! requests, for the windows. So a registration remains in the cycle only if the device refuses its deregistration. The PD could
//! not be deallocated then either, and [`ProtectionDomain::users`](cmid_proto::datapath::ProtectionDomain::users) equals the
//! count of the kernel.

use std::vec;

use parking_lot::Mutex;

/// A registration or a window without an owner.
pub(crate) trait TryEnd {
    /// Deregisters or deallocates it. Returns false if that cannot be done now, but perhaps later.
    fn try_end(&mut self) -> bool;
}

/// The registrations and windows without an owner of one PD.
pub(crate) struct Parked<R: ?Sized>(Mutex<DeferredDeregistrations<R>>);

struct DeferredDeregistrations<R: ?Sized> {
    waiting: Vec<Box<R>>,
    /// Counts the calls of [`Parked::released`].
    released: u64,
}

impl<R: TryEnd + ?Sized> Parked<R> {
    pub(crate) fn new() -> Self {
        Parked(Mutex::new(DeferredDeregistrations { waiting: Vec::new(), released: 0 }))
    }

    /// Ends a registration or a window, or keeps it until that is possible.
    ///
    /// Each is retried after its last user is gone. A user is destroyed first, then calls
    /// [`Parked::released`]. If that call finds it here, it retries. If it came earlier, the changed
    /// counter shows it, and this function retries. So the loop runs once for each user that is destroyed meanwhile.
    pub(crate) fn end(&self, mut registration: Box<R>) {
        let mut released = self.0.lock().released;
        while !registration.try_end() {
            let mut deferred = self.0.lock();
            if deferred.released == released {
                deferred.waiting.push(registration);
                return;
            }
            released = deferred.released;
        }
    }

    /// Ends those that can be ended now. Cheap if there are none.
    pub(crate) fn retry(&self) {
        let waiting = self.0.lock().take();
        if let Some(waiting) = waiting {
            self.end_all(waiting);
        }
    }

    /// Called after the destruction of an object that may have blocked a deregistration.
    pub(crate) fn released(&self) {
        let mut deferred = self.0.lock();
        deferred.released = deferred.released.wrapping_add(1);
        let waiting = deferred.take();
        drop(deferred);
        if let Some(waiting) = waiting {
            self.end_all(waiting);
        }
    }

    #[cold]
    fn end_all(&self, waiting: Vec<Box<R>>) {
        let mut rest = Rest { parked: self, waiting: waiting.into_iter() };
        for registration in rest.waiting.by_ref() {
            self.end(registration);
        }
    }
}

/// Those that [`Parked::end_all`] has not come to. After a panic, as that of the owner of a buffer, they wait on.
struct Rest<'a, R: TryEnd + ?Sized> {
    parked: &'a Parked<R>,
    waiting: vec::IntoIter<Box<R>>,
}

impl<R: TryEnd + ?Sized> Drop for Rest<'_, R> {
    fn drop(&mut self) {
        if self.waiting.len() > 0 {
            self.parked.0.lock().waiting.extend(&mut self.waiting);
        }
    }
}

impl<R: ?Sized> DeferredDeregistrations<R> {
    /// Takes the waiting registrations; `None` if there are none, which is the usual case.
    fn take(&mut self) -> Option<Vec<Box<R>>> {
        if self.waiting.is_empty() { None } else { Some(core::mem::take(&mut self.waiting)) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A registration that can be deregistered after this many attempts.
    struct Held<'a> {
        by: &'a Cell<u32>,
        parked: &'a Parked<Held<'a>>,
        tries: u32,
    }

    impl TryEnd for Held<'_> {
        fn try_end(&mut self) -> bool {
            self.tries += 1;
            let held = self.by.get() > 0;
            if self.by.get() == self.tries {
                // The user ends after the attempt and before the registration is stored.
                self.by.set(0);
                self.parked.released();
            }
            !held
        }
    }

    fn waiting(parked: &Parked<Held<'_>>) -> usize {
        parked.0.lock().waiting.len()
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
        // A cause that ends by itself is found by the next retry.
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

    /// A registration of memory whose owner panics when it is freed; 0 is held.
    struct Panics(Cell<u32>);

    impl TryEnd for Panics {
        fn try_end(&mut self) -> bool {
            let ends = self.0.get();
            assert_ne!(ends, 1, "as the owner of a buffer may");
            self.0.set(2);
            ends > 1
        }
    }

    #[test]
    fn a_panic_of_one_loses_no_other() {
        let parked = Parked::new();
        for ends in [0, 1, 0, 1, 0] {
            // Each waits at first.
            parked.0.lock().waiting.push(Box::new(Panics(Cell::new(ends))));
        }
        let panics = |parked: &Parked<Panics>| {
            std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| parked.retry())).is_err()
        };
        let rounds = [(); 4].map(|()| (panics(&parked), parked.0.lock().waiting.len()));
        assert_eq!(rounds, [(true, 4), (true, 2), (false, 1), (false, 0)]);
    }
}
