//! Where the limits of RDMA devices come from.

use cmid_proto::Errno;

#[cfg(feature = "rdma-core")]
use crate::data::Devices;
use crate::kernel::location::{Depths, Location};

/// The limits of RDMA devices.
#[derive(Clone)]
pub(super) enum Limits {
    /// The same for each device, which is not opened.
    Given(Depths),
    /// What the device answers, which libibverbs opens.
    #[cfg(feature = "rdma-core")]
    Queried(Devices),
}

impl Limits {
    /// Returns the limits of the device at a location.
    ///
    /// # Errors
    /// Those of `Devices::limits`.
    pub(super) fn of(&self, location: &Location) -> Result<Depths, Errno> {
        match self {
            Limits::Given(depths) => Ok(*depths),
            #[cfg(feature = "rdma-core")]
            Limits::Queried(devices) => devices.limits(*location),
        }
    }

    /// Called when an id has reported that its device is gone.
    pub(super) fn removed(&self, location: Location) {
        match self {
            Limits::Given(_) => {}
            #[cfg(feature = "rdma-core")]
            Limits::Queried(devices) => devices.removed(location),
        }
    }
}
