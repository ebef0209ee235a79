//! Registrations that nobody has any more, and that could not be ended yet: work in flight names them, a memory window is
//! bound to them, or the device did not want to.
//!
//! They are kept by their PD, and keep it in turn: a ring, which is broken when the last of them has been ended. All that can
//! hold one up (a QP, a window) has a use of the PD and comes by when it goes, so what is left in such a ring for good is
//! what the device will not let go of: then the PD could not be deallocated either, and [`Pd::users`](crate::Pd::users) goes
//! on counting what the kernel counts.

use std::sync::Mutex;

use crate::data::pd::lock;
use crate::data::registration::Registration;

/// Those of one PD.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Lot>);

#[derive(Default)]
struct Lot {
    #[expect(clippy::vec_box, reason = "they come and go in boxes")]
    waiting: Vec<Box<Registration>>,
    /// Counts what has gone that may have held one up.
    released: u64,
}

impl Parked {
    /// Ends a registration, or keeps it until that can be done.
    ///
    /// None is forgotten that nothing holds up any more. Something that goes does so first, and calls
    /// [`Parked::released`] then. If that finds the registration here, it tries again. If not, it has counted before
    /// the registration was put here, which is noticed, and it is tried again, after that thing has gone. So the loop goes
    /// round once for each thing that goes meanwhile.
    pub(crate) fn end(&self, registration: Box<Registration>) {
        let mut left = registration;
        let mut released = lock(&self.0).released;
        while let Some(back) = left.let_go() {
            left = back;
            let mut lot = lock(&self.0);
            if lot.released == released {
                lot.waiting.push(left);
                return;
            }
            released = lot.released;
        }
    }

    /// Ends what can be ended by now. Costs next to nothing if there is nothing here.
    pub(crate) fn sweep(&self) {
        let waiting = core::mem::take(&mut lock(&self.0).waiting);
        self.end_all(waiting);
    }

    /// Something has gone that may have held one up.
    pub(crate) fn released(&self) {
        let waiting = {
            let mut lot = lock(&self.0);
            lot.released = lot.released.wrapping_add(1);
            core::mem::take(&mut lot.waiting)
        };
        self.end_all(waiting);
    }

    #[expect(clippy::vec_box, reason = "as in the lot")]
    fn end_all(&self, waiting: Vec<Box<Registration>>) {
        for registration in waiting {
            self.end(registration);
        }
    }
}
