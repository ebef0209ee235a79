//! Creates QPs. It is a file of its own because an id holds its QP, and qp.rs must not depend on ids.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, OnceLock};

use cmid_proto::Errno;
use cmid_proto::datapath::Caps;
use parking_lot::Mutex;

use crate::accounting::work_queue::Reservation;
use crate::data::post_checks::DatagramLimit;
use crate::data::qp_attrs::Chosen;
use crate::data::srq::SrqUse;
use crate::data::wr_api::{PostCalls, WrApi, send_ops};
use crate::data::{Cq, Pd, QpInner, Srq};
use crate::errno;
use crate::ffi::{
    self, ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as Mask, ibv_qp_type,
};
use crate::librdmacm::Id;

/// The parameters of a new QP that the application sets.
#[derive(Clone, Copy)]
pub(crate) struct QpInit<'a> {
    pub(crate) pd: &'a Pd,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    /// With an SRQ the receive queue is empty: its capacities are 0.
    pub(crate) srq: Option<&'a Srq>,
    pub(crate) caps: Caps,
    pub(crate) post_calls: PostCalls,
}

/// The device of a new QP, its port, and its kind.
#[derive(Clone, Copy)]
pub(crate) struct QpPlace {
    pub(crate) verbs: NonNull<ibv_context>,
    pub(crate) port: u8,
    pub(crate) datagrams: bool,
}

impl QpInner {
    /// Creates a QP on an id (`rdma_create_qp`). librdmacm then moves the QP to the states of the connection. `place`
    /// names the device of the id.
    ///
    /// # Errors
    /// `EINVAL` if the id has a QP, or if PD and CQs are not on its device; the errno of librdmacm.
    pub(crate) fn create_on_id(id: &Id, place: QpPlace, init: &QpInit<'_>) -> Result<Arc<Self>, Errno> {
        if id.qp.is_some() {
            return Err(Errno::EINVAL);
        }
        Self::create(place, init, Chosen::by_library(), |_, attr, calls| {
            // SAFETY: the id is alive and has a device (that of `place`) and no QP. PD, CQs and SRQ are of that device,
            // alive, and outlive the QP, which holds them. Both CQs are given, so librdmacm creates none. The
            // attributes begin with the fields of `ibv_qp_init_attr`.
            errno::of_call(|| unsafe {
                match calls {
                    PostCalls::Extended => ffi::rdma_create_qp_ex(id.as_ptr(), attr),
                    PostCalls::Classic => ffi::rdma_create_qp(id.as_ptr(), (*attr).pd, attr.cast()),
                }
            })?;
            // SAFETY: the id is alive; librdmacm has just filled the field.
            NonNull::new(unsafe { (*id.as_ptr()).qp }).ok_or(Errno::EIO)
        })
    }

    /// Creates a QP that is on no id (`ibv_create_qp`).
    ///
    /// # Errors
    /// `EINVAL` if PD and CQs are not on the device; the errno of the provider.
    pub(crate) fn create_alone(place: QpPlace, init: &QpInit<'_>) -> Result<Arc<Self>, Errno> {
        Self::create(place, init, Chosen::default(), |verbs, attr, calls| {
            errno::clear();
            // SAFETY: PD, CQs and SRQ are alive and belong to one device. The context of the device is open. The QP
            // holds them, so they outlive it. The attributes begin with the fields of `ibv_qp_init_attr`.
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
        init: &QpInit<'_>,
        chosen: Chosen,
        mut make: impl FnMut(*mut ibv_context, *mut ibv_qp_init_attr_ex, PostCalls) -> Result<NonNull<ibv_qp>, Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let (QpPlace { verbs, port, datagrams }, caps) = (place, &init.caps);
        let pd = init.pd.enter().map_err(|refused| refused.errno())?;
        let (send_cq, recv_cq) = (init.send_cq.inner(), init.recv_cq.inner());
        let reservation = Reservation::make([send_cq, recv_cq], caps)?;
        if !pd.is_on(verbs) || !send_cq.is_on(verbs) || !recv_cq.is_on(verbs) {
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
        attr.qp_type = if datagrams { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC };
        attr.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = send_ops(datagrams);
        let is_iwarp = init.pd.context().is_iwarp();
        // The other calls need not check the number of ranges, nor what iWARP and providers do otherwise.
        let vendor = pd.inner().vendor();
        let is_classic = caps.max_send_sge != 1 || is_iwarp || !vendor.has_extended_calls();
        let post_calls = if is_classic { PostCalls::Classic } else { init.post_calls };
        let (raw, made_by) = attempt(post_calls, |calls| {
            attr.cap = ibv_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: caps.max_send_sge,
                max_recv_sge: caps.max_recv_sge,
                max_inline_data: caps.max_inline,
            };
            make(verbs.as_ptr(), &raw mut attr, calls)
        })?;
        // SAFETY: the QP was just created on this context, with the operations of its kind, by the extended call, and
        // is alive.
        let wr_api = (made_by == PostCalls::Extended).then(|| unsafe { WrApi::of(raw, datagrams) }).flatten();
        // SAFETY: the QP was just created, and is alive.
        let srq = srq.map(|srq| srq.of(unsafe { raw.as_ref() }.qp_num));
        pd.inner().late_writers().into_iter().for_each(|qps| qps.add(raw));
        let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = attr.cap;
        let max_inline = if vendor.copies_inline() { max_inline_data } else { 0 };
        let rounded = Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline };
        Ok(Arc::new(QpInner {
            raw,
            wr_api,
            post_send,
            post_recv,
            is_datagram: datagrams,
            is_iwarp,
            sends: AtomicBool::new(false),
            initiator_depth: AtomicU8::new(u8::MAX),
            caps: rounded,
            chosen,
            datagram_limit: DatagramLimit::new(port),
            has_windows: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            blocks: OnceLock::new(),
            parts: Mutex::default(),
            queues: reservation.into_queues(),
            srq,
            pd,
        }))
    }
}

/// Makes a QP, by the classic call if the extended one fails: a provider that lacks the extended calls or one of the
/// operations refuses, with an errno of its own choice, and the second call repeats the errno of any other error.
/// Returns which call made the QP: only that of the extended call has the fields behind `ibv_qp`.
fn attempt<T>(
    post_calls: PostCalls,
    mut make: impl FnMut(PostCalls) -> Result<T, Errno>,
) -> Result<(T, PostCalls), Errno> {
    match make(post_calls) {
        Err(_) if post_calls == PostCalls::Extended => Ok((make(PostCalls::Classic)?, PostCalls::Classic)),
        made => Ok((made?, post_calls)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_that_the_extended_call_did_not_make_is_no_extended_one() {
        let refuses = |calls| match calls {
            PostCalls::Extended => Err(Errno::EOPNOTSUPP),
            PostCalls::Classic => Ok(()),
        };
        assert_eq!(attempt(PostCalls::Extended, refuses), Ok(((), PostCalls::Classic)));
        assert_eq!(attempt(PostCalls::Classic, refuses), Ok(((), PostCalls::Classic)));
        assert_eq!(attempt(PostCalls::Extended, |_| Ok(())), Ok(((), PostCalls::Extended)));
        assert_eq!(attempt(PostCalls::Extended, |_| Err::<(), _>(Errno::ENOMEM)), Err(Errno::ENOMEM));
    }
}
