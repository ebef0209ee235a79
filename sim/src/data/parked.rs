//! Regions without a handle that cannot be deregistered yet: work requests name them whose completions are not polled, or the device
//! does not let them go.

use cmid_proto::Errno;

use crate::data::mr::Owned;
use crate::fabric::shared::{Parked, Shared};

impl Parked for Owned {
    /// Whether there is nothing more to be done: it is deregistered, or its device is gone and does not let go of it. In the
    /// latter case its memory stays lent. What is in flight, or bound to it, passes.
    fn try_end(&self, shared: &Shared) -> bool {
        if self.is_gone(shared) {
            return true;
        }
        let Err(error) = self.deregister(shared) else { return true };
        let passes = matches!(error.errno(), Errno::EBUSY | Errno::EINVAL);
        !passes && !shared.with(|world| world.lives(self.device))
    }
}
