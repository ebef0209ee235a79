//! Creating a QP on an id. It is apart from qp.rs because an id holds its QP.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::Caps;

use crate::data::work_queue::WorkQueue;
use crate::data::{Cq, Pd, QpInner};
use crate::errno;
use crate::ffi::{self, ibv_context, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type};
use crate::librdmacm::Id;

/// What makes the `ibv_qp` of a new [`QpInner`].
pub(crate) struct Parts<'a> {
    pub(crate) verbs: NonNull<ibv_context>,
    pub(crate) pd: &'a Pd,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) caps: Caps,
    pub(crate) datagrams: bool,
}

impl QpInner {
    /// `rdma_create_qp`, so that librdmacm moves the QP with the connection. The device of the id is that of the parts.
    ///
    /// # Errors
    /// `EINVAL` if the id has a QP, or if PD and CQs are not on its device; what librdmacm leaves.
    pub(crate) fn create_on_id(id: &Id, parts: &Parts<'_>) -> Result<Arc<Self>, Errno> {
        if id.qp.is_some() {
            return Err(Errno::EINVAL);
        }
        Self::create(parts, |pd, attr| {
            // SAFETY: the id is alive, has a device (that of the parts), and no QP; PD and CQs are of that device,
            // alive, and outlive the QP, which holds them. Both CQs are given, so librdmacm makes none of its own.
            errno::of_rdma(unsafe { ffi::rdma_create_qp(id.as_ptr(), pd, attr) })?;
            // SAFETY: the id is alive; rdma_create_qp has just filled the field.
            NonNull::new(unsafe { (*id.as_ptr()).qp }).ok_or(Errno::EIO)
        })
    }

    /// `ibv_create_qp`: the QP is on no id.
    ///
    /// # Errors
    /// `EINVAL` if PD and CQs are not on the device; what the provider leaves.
    pub(crate) fn create_alone(parts: &Parts<'_>) -> Result<Arc<Self>, Errno> {
        Self::create(parts, |pd, attr| {
            errno::clear();
            // SAFETY: PD and CQs are of one device, alive, and outlive the QP, which holds them.
            NonNull::new(unsafe { ffi::ibv_create_qp(pd, attr) }).ok_or_else(errno::last)
        })
    }

    fn create(
        parts: &Parts<'_>,
        make: impl FnOnce(*mut ibv_pd, *mut ibv_qp_init_attr) -> Result<NonNull<ibv_qp>, Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let Parts { verbs, caps, datagrams, .. } = *parts;
        let pd = parts.pd.enter().map_err(|refused| refused.errno())?;
        let [send, recv] = WorkQueue::reserve([parts.send_cq.inner(), parts.recv_cq.inner()], caps)?;
        let (send_cq, recv_cq) = (send.cq(), recv.cq());
        if !pd.is_on(verbs) || !send_cq.is_on(verbs) || !recv_cq.is_on(verbs) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the context is open, because the PD is on it; its operation table does not change after that.
        let (post_send, post_recv) = unsafe {
            let operations = &(*verbs.as_ptr()).ops;
            (operations.post_send.ok_or(Errno::ENOSYS)?, operations.post_recv.ok_or(Errno::ENOSYS)?)
        };
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: send_cq.as_ptr(),
            recv_cq: recv_cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: caps.max_send_sge,
                max_recv_sge: caps.max_recv_sge,
                max_inline_data: caps.max_inline,
            },
            qp_type: if datagrams { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC },
            sq_sig_all: 0,
        };
        let raw = make(pd.as_ptr(), &raw mut attr)?;
        let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = attr.cap;
        let rounded = Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline: max_inline_data };
        let qp = QpInner {
            raw,
            post_send,
            post_recv,
            is_datagram: datagrams,
            requested: caps,
            caps: rounded,
            send,
            recv,
            pd,
        };
        Ok(Arc::new(qp))
    }
}
