//! The data path of a device that is recorded is that of the device: none of it is.

use cmid_proto::{Attaching, Errno, IdKey};
use cmid_trace::Trace;

use crate::{Caps, DataPath};

impl<D: DataPath> DataPath for Trace<D> {
    type Pd = D::Pd;
    type Mr = D::Mr;
    type Cq = D::Cq;
    type Completion = D::Completion;
    type Qp = D::Qp;
    type Ah = D::Ah;

    fn alloc_pd(&mut self, id: IdKey) -> Result<D::Pd, Errno> {
        D::alloc_pd(self, id)
    }

    fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<D::Cq, Errno> {
        D::create_cq(self, id, depth)
    }

    fn create_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &D::Pd,
        send_cq: &D::Cq,
        recv_cq: &D::Cq,
        caps: Caps,
    ) -> Result<D::Qp, Errno> {
        D::create_qp(self, attaching, pd, send_cq, recv_cq, caps)
    }

    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
        D::destroy_qp(self, id)
    }
}
