//! The device that an id is on, and its limits.

use cmid_proto::Errno;

#[cfg(feature = "rdma-core")]
use crate::data::Devices;

/// The maximum numbers of RDMA reads and atomics of a device (`max_qp_rd_atom` and `max_qp_init_rd_atom` of
/// ibv_query_device(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

impl Depths {
    /// Those of a device that cannot be queried.
    pub(crate) const UNKNOWN: Depths = Depths { responder_resources: u8::MAX, initiator_depth: u8::MAX };
}

/// The device that an id is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The GUID of the node, in network order.
    pub(crate) guid: u64,
    /// The kernel's number of the device; [`NO_INDEX`] on kernels that do not report it.
    pub(crate) index: u32,
    pub(crate) port: u8,
}

/// What is known about the device of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceBinding {
    /// According to the events read so far, it has no device.
    Unbound,
    /// It has a device. The kernel has not been queried for it.
    Unqueried,
    At(Location),
}

impl From<Option<Location>> for DeviceBinding {
    fn from(queried: Option<Location>) -> Self {
        queried.map_or(DeviceBinding::Unbound, DeviceBinding::At)
    }
}

/// `UCMA_INVALID_IB_INDEX` of librdmacm.
pub(crate) const NO_INDEX: u32 = u32::MAX;

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
