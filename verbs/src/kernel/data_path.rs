//! QPs of libibverbs on ids of the kernel, and the RDMA devices of the ids.

use std::sync::Arc;

use cmid_proto::datapath::{CreateReason, QpState};
use cmid_proto::{Errno, IdKey};

use crate::data::{Context, Devices, Pd, QpDevice, QpInit, QpInner, QpPlace, ibv_qp_attr_of};
use crate::kernel::device::KernelCm;
use crate::kernel::location::{Limits, Location};
use crate::kernel::node::OpenError;
use crate::raw;
use crate::sign::signed;

impl KernelCm {
    /// Creates a device without ids, whose ids have QPs.
    pub(crate) fn with_qps() -> Result<Self, OpenError> {
        Self::open_with(|| Ok(Limits::Queried(Devices::new()?)))
    }

    fn location(&mut self, id: IdKey) -> Result<Location, Errno> {
        self.locate(id)?.copied().ok_or(Errno::ENODEV)
    }

    /// Returns the context of the id's device, and the port of the id.
    pub(crate) fn context(&mut self, id: IdKey) -> Result<(Arc<Context>, u8), Errno> {
        let location = self.location(id)?;
        match &self.limits {
            Limits::Queried(devices) => Ok((devices.open(location)?, location.port)),
            Limits::Given(_) => Err(Errno::ENOSYS),
        }
    }

    pub(crate) fn qp_attr(&mut self, id: IdKey, state: QpState) -> Result<raw::QpAttr, Errno> {
        self.location(id)?;
        let attr = self.init_qp_attr(id, state.0)?;
        Ok(raw::QpAttr::new(ibv_qp_attr_of(&attr), signed(attr.qp_attr_mask)))
    }

    pub(crate) fn create_qp(&mut self, id: IdKey, init: &QpInit<'_>) -> Result<Arc<QpInner>, Errno> {
        self.attach_qp(id, |location, datagrams| {
            let context = init.pd.context();
            if !context.is_at(location) {
                return Err(Errno::EINVAL);
            }
            QpInner::create_alone(QpPlace { verbs: context.verbs(), port: location.port, datagrams }, init)
        })
    }

    /// Returns the device of an id, for the error of a QP on it.
    pub(crate) fn qp_device(&mut self, id: IdKey, pd: &Pd) -> Option<QpDevice> {
        let location = self.location(id).ok()?;
        let verbs = pd.context().is_at(&location).then(|| pd.context().verbs());
        Some(QpDevice { name: Devices::name(location)?, verbs, datagrams: self.is_datagram(id) })
    }

    /// Returns the reason if an errno of [`KernelCm::context`] is that of the device's node.
    pub(crate) fn node_error(&mut self, id: IdKey, errno: Errno) -> Option<CreateReason> {
        Devices::node_error(self.location(id).ok()?, errno)
    }
}
