//! Registrations and memory windows without an owner that could not be ended yet: work in flight names them, a window is
//! bound to a registration, or `ibv_dereg_mr` failed.
//!
//! Their PD keeps them, and they keep the PD. This cycle of references ends with the last of them. A QP or window that
//! blocks a deregistration uses the PD, and calls [`Parked::released`] when it is destroyed; so does a QP that executes no more
//! requests, for the windows. So a registration remains in the cycle only if the device refuses its deregistration. The PD could
//! not be deallocated then either, and [`ProtectionDomain::users`](cmid_proto::datapath::ProtectionDomain::users) equals the
//! count of the kernel.

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
        for registration in waiting {
            self.end(registration);
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
}
