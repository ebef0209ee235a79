//! Creating a QP on an id. It is apart from qp.rs because an id holds its QP.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::Errno;

use crate::data::work_queue::WorkQueue;
use crate::data::{Caps, Cq, Pd, QpInner};
use crate::errno;
use crate::ffi::{self, PostSend, c_int, ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type, ibv_send_wr};
use crate::id::Id;

impl QpInner {
    /// `rdma_create_qp`, so that librdmacm moves the QP with the connection. The device of the id is the one of this
    /// context.
    pub(crate) fn create(
        verbs: NonNull<ibv_context>,
        id: &Id,
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        caps: Caps,
    ) -> Result<Arc<Self>, Errno> {
        let pd = pd.enter().map_err(|refused| refused.errno())?;
        let [send, recv] =
            WorkQueue::reserve([send_cq.inner(), recv_cq.inner()], [caps.max_send_wr, caps.max_recv_wr])?;
        let (send_cq, recv_cq) = (send.cq(), recv.cq());
        if id.qp.is_some() || !pd.is_on(verbs) || !send_cq.is_on(verbs) || !recv_cq.is_on(verbs) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the context is open, because the PD is on it; its operation table does not change after that.
        let (post_send, post_recv) = unsafe {
            let operations = &(*verbs.as_ptr()).ops;
            (operations.post_send.ok_or(Errno::ENOSYS)?, operations.post_recv.ok_or(Errno::ENOSYS)?)
        };
        let datagram = id.is_datagram();
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
            qp_type: if datagram { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC },
            sq_sig_all: 0,
        };
        // SAFETY: the id is alive, has a device (the context is its), and no QP; PD and CQs are of that device,
        // alive, and outlive the QP, which holds them. Both CQs are given, so librdmacm makes none of its own.
        errno::of_rdma(unsafe { ffi::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &raw mut attr) })?;
        // SAFETY: the id is alive; rdma_create_qp has just filled the field.
        let raw = NonNull::new(unsafe { (*id.as_ptr()).qp }).ok_or(Errno::EIO)?;
        let (post_send, post_send_to) =
            if datagram { (refuse as PostSend, post_send) } else { (post_send, refuse as PostSend) };
        Ok(Arc::new(QpInner { raw, post_send, post_send_to, post_recv, max_inline: caps.max_inline, send, recv, pd }))
    }
}

/// Stands for the provider's function in the calls that a QP of the other kind has, so that none has to ask which it
/// is.
///
/// # Safety
/// Nothing is asked: it looks at none of its arguments. It has the type of the function that it stands for.
unsafe extern "C" fn refuse(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    ffi::EINVAL
}
