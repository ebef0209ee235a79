//! Regions without a handle that cannot be deregistered yet.

use std::sync::{Mutex, PoisonError};

use cmid_proto::Errno;

use crate::data::mr::Owned;
use crate::fabric::Shared;

/// Regions that wait: for the completions of their work requests to be polled, or for the device to let them go.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    waiting: Mutex<Vec<Owned>>,
}

impl Parked {
    fn take(&self) -> Vec<Owned> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, more: impl IntoIterator<Item = Owned>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }
}

impl Shared {
    /// Deregisters a region whose handle goes, now or as soon as it can be.
    pub(crate) fn retire(&self, own: Owned) {
        if !self.try_retire(&own) {
            self.parked.add([own]);
        }
    }

    /// Something has changed that parked regions may have waited for, or somebody comes by, as with `cmid-verbs`: what only
    /// a passing failure has left is ended then.
    pub(crate) fn sweep(&self) {
        let waiting = self.parked.take();
        self.parked.add(waiting.into_iter().filter(|own| !self.try_retire(own)).collect::<Vec<_>>());
    }

    /// Whether there is nothing more to be done: it is deregistered, or its device is gone and does not let go of it. In the
    /// latter case its memory stays lent. What is in flight, or bound to it, passes.
    fn try_retire(&self, own: &Owned) -> bool {
        if own.is_gone(self) {
            return true;
        }
        let Err(error) = own.deregister(self) else { return true };
        let passes = matches!(error.errno(), Errno::EBUSY | Errno::EINVAL);
        !passes && !self.with(|world| world.lives(own.device))
    }
}
