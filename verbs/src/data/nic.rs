//! Handles of RDMA devices.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{DeviceAttrs, PortAttrs, PortGid, RdmaDevice};

use crate::data::Context;
use crate::raw;

/// A handle of an RDMA device, and of the port that its id was on. It keeps the device open.
#[derive(Clone)]
pub struct Nic {
    context: Arc<Context>,
    port_num: u8,
}

impl Nic {
    pub(crate) fn new(context: Arc<Context>, port_num: u8) -> Self {
        Nic { context, port_num }
    }

    pub(crate) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.context)
    }

    /// Returns the name of the device, such as `mlx5_0` (ibv_get_device_name(3)).
    #[must_use]
    pub fn name(&self) -> &str {
        self.context.name().to_str().unwrap_or_default()
    }
}

impl RdmaDevice for Nic {
    fn port_num(&self) -> u8 {
        self.port_num
    }

    fn comp_vectors(&self) -> u32 {
        self.context.comp_vectors()
    }

    fn attrs(&self) -> Result<DeviceAttrs, Errno> {
        self.context.attrs()
    }

    fn port_attrs(&self, port: u8) -> Result<PortAttrs, Errno> {
        self.context.port_attrs(port)
    }

    /// Reads sysfs where libibverbs is too old for ibv_query_gid_table(3).
    fn gids(&self, port: u8) -> Result<Vec<PortGid>, Errno> {
        self.context.gids(port)
    }
}

impl PartialEq for Nic {
    /// Whether it is the same device, whatever the port.
    fn eq(&self, other: &Self) -> bool {
        self.context.is(other.context.verbs())
    }
}

impl Eq for Nic {}

impl Nic {
    /// Returns the `ibv_context`; see [`raw`].
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_context(&self) -> NonNull<raw::IbvContext> {
        self.context.verbs().cast()
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("name", &self.name()).field("port_num", &self.port_num).finish_non_exhaustive()
    }
}
