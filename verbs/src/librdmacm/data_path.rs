//! QPs on ids of librdmacm, and the contexts of their devices.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::sync::Arc;

use cmid_proto::datapath::QpState;
use cmid_proto::{Device as _, Errno, IdKey, Outcome};

use crate::data::{Context, Pd, QpDevice, QpInit, QpInner, QpPlace, name_of};
use crate::errno;
use crate::ffi::{self, ibv_qp_attr};
use crate::librdmacm::Rdmacm;
use crate::raw;

impl Rdmacm {
    /// Returns the context of the id's device, which all objects on it share, and the port of the id.
    pub(crate) fn context(&mut self, id: IdKey) -> Result<(Arc<Context>, u8), Errno> {
        let record = self.id(id)?;
        let verbs = record.verbs().ok_or(Errno::ENODEV)?;
        let port = record.port_num();
        Ok((self.contexts.open(verbs, port, self.local_addr(id).ok())?, port))
    }

    pub(crate) fn qp_attr(&mut self, id: IdKey, state: QpState) -> Result<raw::QpAttr, Errno> {
        let id = self.id_mut(id)?;
        id.verbs().ok_or(Errno::ENODEV)?;
        let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
        let mut mask = 0;
        // SAFETY: the id is alive and has a device, and the results have places; zeros are a value of the attributes.
        let attr = unsafe {
            (*attr.as_mut_ptr()).qp_state = state.0;
            errno::of_call(|| ffi::rdma_init_qp_attr(id.as_ptr(), attr.as_mut_ptr(), &raw mut mask))?;
            attr.assume_init()
        };
        Ok(raw::QpAttr::new(attr, mask))
    }

    pub(crate) fn raw_id(&mut self, id: IdKey) -> Result<NonNull<raw::RdmaCmId>, Errno> {
        NonNull::new(self.id_mut(id)?.as_ptr().cast()).ok_or(Errno::EIO)
    }

    pub(crate) fn create_qp(&mut self, id: IdKey, init: &QpInit<'_>) -> Result<Arc<QpInner>, Errno> {
        let id = self.id_mut(id)?;
        let verbs = id.verbs().ok_or(Errno::ENODEV)?;
        let place = QpPlace { verbs, port: id.port_num(), datagrams: id.is_datagram() };
        let qp = QpInner::create_on_id(id, place, init)?;
        id.qp = Some(Arc::clone(&qp));
        Ok(qp)
    }

    /// Returns the device of an id, for the error of a QP on it.
    pub(crate) fn qp_device(&mut self, id: IdKey, _: &Pd) -> Option<QpDevice> {
        let id = self.id_mut(id).ok()?;
        let verbs = id.verbs()?;
        Some(QpDevice { name: name_of(verbs), verbs: Some(verbs), datagrams: id.is_datagram() })
    }

    pub(crate) fn has_qp(&self, id: IdKey) -> bool {
        self.tables.id(id).is_ok_and(|id| id.qp.is_some())
    }

    pub(crate) fn destroy_qp(&mut self, id: IdKey) -> Outcome {
        self.tables.id_mut(id)?.detach_qp()
    }
}
