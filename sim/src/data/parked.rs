//! Regions without a handle that cannot be deregistered yet: completions of work requests that use them are not
//! polled, or the device refuses.

use cmid_proto::Errno;

use crate::data::mr::Owned;
use crate::fabric::shared::{Parked, Shared};

impl Parked for Owned {
    /// Tries to deregister. True if no further attempt is needed: the region is deregistered, or its device is
    /// removed and refuses. In the latter case its memory stays in the fabric. Work in flight and bound windows are
    /// temporary obstacles.
    fn try_end(&self, shared: &Shared) -> bool {
        if self.is_gone() {
            return true;
        }
        let Err(error) = self.deregister(shared) else { return true };
        let passes = matches!(error.errno(), Errno::EBUSY | Errno::EINVAL);
        !passes && self.removal.has_happened()
    }
}
