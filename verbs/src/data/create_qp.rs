//! Creating a QP on an id. It is apart from qp.rs because an id holds its QP.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::Caps;

use crate::accounting::poll::Provider as _;
use crate::accounting::work_queue::Reservation;
use crate::data::srq::SrqUse;
use crate::data::wr_api::{PostCalls, WrApi, send_ops};
use crate::data::{Cq, Pd, QpInner, Srq};
use crate::errno;
use crate::ffi::{
    self, ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as Mask, ibv_qp_type,
};
use crate::librdmacm::Id;

/// What an application chooses of a new QP.
#[derive(Clone, Copy)]
pub(crate) struct QpInit<'a> {
    pub(crate) pd: &'a Pd,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) srq: Option<&'a Srq>,
    pub(crate) caps: Caps,
    pub(crate) post_calls: PostCalls,
}

/// Where and of what kind it is.
#[derive(Clone, Copy)]
pub(crate) struct QpPlace {
    pub(crate) verbs: NonNull<ibv_context>,
    pub(crate) datagrams: bool,
}

impl QpInner {
    /// `rdma_create_qp`, so that librdmacm moves the QP with the connection. The device of the id is that of the place.
    ///
    /// # Errors
    /// `EINVAL` if the id has a QP, or if PD and CQs are not on its device; what librdmacm leaves.
    pub(crate) fn create_on_id(id: &Id, place: QpPlace, init: QpInit<'_>) -> Result<Arc<Self>, Errno> {
        if id.qp.is_some() {
            return Err(Errno::EINVAL);
        }
        Self::create(place, init, |_, attr, calls| {
            // SAFETY: the id is alive, has a device (that of the place), and no QP; PD, CQs and SRQ are of that
            // device, alive, and outlive the QP, which holds them. Both CQs are given, so librdmacm makes none of its own.
            // The attributes begin like those of the other call.
            errno::of_rdma(unsafe {
                match calls {
                    PostCalls::Extended => ffi::rdma_create_qp_ex(id.as_ptr(), attr),
                    PostCalls::Classic => ffi::rdma_create_qp(id.as_ptr(), (*attr).pd, attr.cast()),
                }
            })?;
            // SAFETY: the id is alive; librdmacm has just filled the field.
            NonNull::new(unsafe { (*id.as_ptr()).qp }).ok_or(Errno::EIO)
        })
    }

    /// `ibv_create_qp`: the QP is on no id.
    ///
    /// # Errors
    /// `EINVAL` if PD and CQs are not on the device; what the provider leaves.
    pub(crate) fn create_alone(place: QpPlace, init: QpInit<'_>) -> Result<Arc<Self>, Errno> {
        Self::create(place, init, |verbs, attr, calls| {
            errno::clear();
            // SAFETY: PD, CQs and SRQ are of one device, whose context is open, alive, and outlive the QP, which holds
            // them. The attributes begin like those of the other call.
            let qp = unsafe {
                match calls {
                    PostCalls::Extended => ffi::ibv_create_qp_ex(verbs, attr)?,
                    PostCalls::Classic => ffi::ibv_create_qp((*attr).pd, attr.cast()),
                }
            };
            NonNull::new(qp).ok_or_else(errno::last)
        })
    }

    fn create(
        place: QpPlace,
        init: QpInit<'_>,
        mut make: impl FnMut(*mut ibv_context, *mut ibv_qp_init_attr_ex, PostCalls) -> Result<NonNull<ibv_qp>, Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let (QpPlace { verbs, datagrams }, QpInit { caps, .. }) = (place, init);
        let post_calls = if caps.max_send_sge > 1 { PostCalls::Classic } else { init.post_calls };
        let pd = init.pd.enter().map_err(|refused| refused.errno())?;
        // With an SRQ the receive queue is empty.
        let caps = if init.srq.is_some() { Caps { max_recv_wr: 0, max_recv_sge: 0, ..caps } } else { caps };
        let (send_cq, recv_cq) = (init.send_cq.inner(), init.recv_cq.inner());
        let reservation = Reservation::make([send_cq, recv_cq], caps)?;
        if !pd.is_on(verbs) || !send_cq.is_on(verbs) || !recv_cq.is_on(verbs) {
            return Err(Errno::EINVAL);
        }
        // The receives of an SRQ complete in any order, and their tokens could be `wr_id`s.
        if init.srq.is_some() && (send_cq.cq_slots().is_counting() || recv_cq.cq_slots().is_counting()) {
            return Err(Errno::EINVAL);
        }
        let srq = init.srq.map(|srq| SrqUse::attach(srq, &pd, init.recv_cq.inner())).transpose()?;
        // SAFETY: the context is open, because the PD is on it; its operation table does not change after that.
        let (post_send, post_recv) = unsafe {
            let operations = &(*verbs.as_ptr()).ops;
            (operations.post_send.ok_or(Errno::ENOSYS)?, operations.post_recv.ok_or(Errno::ENOSYS)?)
        };
        // SAFETY: zeros are a value of it: integers and null pointers.
        let mut attr: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
        (attr.send_cq, attr.recv_cq, attr.pd) = (send_cq.as_ptr(), recv_cq.as_ptr(), pd.as_ptr());
        attr.srq = srq.as_ref().map_or(ptr::null_mut(), |srq| srq.srq().as_ptr());
        attr.cap = ibv_qp_cap {
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline,
        };
        attr.qp_type = if datagrams { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC };
        attr.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = send_ops(datagrams);
        let asked = attr.cap;
        let raw = match post_calls {
            PostCalls::Classic => make(verbs.as_ptr(), &raw mut attr, PostCalls::Classic)?,
            // A provider without the calls, or without one of the operations, has refused. Which errno it uses
            // differs, and another mistake comes back with its errno from the second call.
            PostCalls::Extended => make(verbs.as_ptr(), &raw mut attr, PostCalls::Extended).or_else(|_| {
                attr.cap = asked;
                make(verbs.as_ptr(), &raw mut attr, PostCalls::Classic)
            })?,
        };
        // SAFETY: the QP is alive, and was just made.
        let wr_api = unsafe { WrApi::of(raw, datagrams) };
        let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = attr.cap;
        let rounded = Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline: max_inline_data };
        let [send, recv] = reservation.into_queues();
        let qp = QpInner {
            raw,
            wr_api: wr_api.filter(|_| post_calls == PostCalls::Extended),
            post_send,
            post_recv,
            is_datagram: datagrams,
            requested: caps,
            caps: rounded,
            send,
            recv,
            srq,
            pd,
        };
        Ok(Arc::new(qp))
    }
}
