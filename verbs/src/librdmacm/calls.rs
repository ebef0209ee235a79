//! Calls of librdmacm on one id.
//!
//! All of them are sound for the same reasons. An [`Id`] is alive. Its channel is open for as long as it is in its
//! table. One thread at a time uses it: only [`Rdmacm`](super::device::Rdmacm) owns it, and the callers borrow that
//! mutably.

use core::net::SocketAddr;
use core::ptr;

use cmid_proto::{CmOption, ConnParam, Ece, Errno, Outcome, RejectReason};

use crate::ffi::{self, c_int, ibv_ece, ibv_event_type, rdma_conn_param};
use crate::librdmacm::id::Id;
use crate::sockaddr::CAddr;
use crate::{descriptors, errno, macros};

pub(crate) fn bind(id: &Id, addr: &SocketAddr) -> Outcome {
    let mut addr = CAddr::new(*addr);
    // SAFETY: the id is alive, its channel open, and the address is read during the call.
    of_look_up(errno::of_call(|| unsafe { ffi::rdma_bind_addr(id.as_ptr(), addr.as_mut_ptr()) }))
}

pub(crate) fn resolve_addr(id: &Id, src: &Option<SocketAddr>, dst: &SocketAddr, timeout_ms: i32) -> Outcome {
    let (mut src, mut dst) = (src.map(CAddr::new), CAddr::new(*dst));
    let src = src.as_mut().map_or(ptr::null_mut(), CAddr::as_mut_ptr);
    // SAFETY: the id is alive, its channel open, and the addresses are read during the call; the source may be null.
    errno::of_call(|| unsafe { ffi::rdma_resolve_addr(id.as_ptr(), src, dst.as_mut_ptr(), timeout_ms) })
}

/// librdmacm does not wait for ibacm here (acm.rs).
pub(crate) fn resolve_route(id: &Id, timeout_ms: i32) -> Outcome {
    id.needs_device()?;
    // SAFETY: the id is alive, its channel open, and it has a device, which librdmacm follows here.
    errno::of_call(|| unsafe { ffi::rdma_resolve_route(id.as_ptr(), timeout_ms) })
}

pub(crate) fn listen(id: &Id, backlog: i32) -> Outcome {
    // SAFETY: the id is alive and its channel open.
    of_look_up(errno::of_call(|| unsafe { ffi::rdma_listen(id.as_ptr(), backlog) }))
}

/// The outcome of a call that opens the device of the id. librdmacm returns `ENODEV` for each reason why it cannot
/// (`ucma_init_device`).
fn of_look_up(outcome: Outcome) -> Outcome {
    match outcome {
        Err(Errno::ENODEV) => Err(descriptors::cause(Errno::ENODEV, descriptors::CONTEXT)),
        Ok(()) | Err(_) => outcome,
    }
}

pub(crate) fn connect(id: &Id, param: &ConnParam, private_data: &[u8]) -> Outcome {
    id.needs_device()?;
    let mut param = conn_param(param, private_data)?;
    // SAFETY: the id is alive and its channel open. It has a device, which librdmacm follows here, and holds its QP, if
    // any. The parameters and the private data that they point at are read during the call.
    errno::of_call(|| unsafe { ffi::rdma_connect(id.as_ptr(), &raw mut param) })
}

pub(crate) fn accept(id: &Id, param: &ConnParam, private_data: &[u8]) -> Outcome {
    id.needs_device()?;
    let mut param = conn_param(param, private_data)?;
    // SAFETY: as in `connect`.
    errno::of_call(|| unsafe { ffi::rdma_accept(id.as_ptr(), &raw mut param) })
}

pub(crate) fn reject(id: &Id, reason: RejectReason, private_data: &[u8]) -> Outcome {
    let len = u8::try_from(private_data.len()).map_err(|_| Errno::EINVAL)?;
    let data = private_data.as_ptr().cast();
    // SAFETY: the id is alive, its channel open, and `len` bytes are read during the call.
    errno::of_call(|| unsafe {
        match reason {
            RejectReason::Consumer => ffi::rdma_reject(id.as_ptr(), data, len),
            RejectReason::Ece => ffi::rdma_reject_ece(id.as_ptr(), data, len),
        }
    })
}

pub(crate) fn establish(id: &Id) -> Outcome {
    // SAFETY: the id is alive and its channel open.
    errno::of_call(|| unsafe { ffi::rdma_establish(id.as_ptr()) })
}

pub(crate) fn disconnect(id: &Id) -> Outcome {
    // SAFETY: the id is alive, its channel open, and it holds its QP, if any. An id without a device is refused.
    errno::of_call(|| unsafe { ffi::rdma_disconnect(id.as_ptr()) })
}

pub(crate) fn notify(id: &Id) -> Outcome {
    // SAFETY: the id is alive and its channel open. The event is only a number here.
    errno::of_call(|| unsafe { ffi::rdma_notify(id.as_ptr(), ibv_event_type::IBV_EVENT_COMM_EST) })
}

pub(crate) fn set_option(id: &Id, option: CmOption) -> Outcome {
    match option {
        CmOption::Tos(tos) => set(id, macros::RDMA_OPTION_ID_TOS, tos),
        CmOption::ReuseAddr(on) => set(id, macros::RDMA_OPTION_ID_REUSEADDR, c_int::from(on)),
        CmOption::AfOnly(on) => set(id, macros::RDMA_OPTION_ID_AFONLY, c_int::from(on)),
        CmOption::AckTimeout(power) => set(id, macros::RDMA_OPTION_ID_ACK_TIMEOUT, power),
    }
}

/// Sets an option. The kernel accepts a value only in the length of the option: `u8` or `c_int`.
fn set<T: Copy>(id: &Id, name: c_int, mut value: T) -> Outcome {
    let place = (&raw mut value).cast();
    // SAFETY: the id is alive, its channel open, and the value is read during the call.
    errno::of_call(|| unsafe { ffi::rdma_set_option(id.as_ptr(), macros::RDMA_OPTION_ID, name, place, size_of::<T>()) })
}

pub(crate) fn set_ece(id: &Id, ece: Ece) -> Outcome {
    let mut ece = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: 0 };
    // SAFETY: the id is alive, and the options are read during the call.
    errno::of_call(|| unsafe { ffi::rdma_set_local_ece(id.as_ptr(), &raw mut ece) })
}

pub(crate) fn remote_ece(id: &Id) -> Result<Ece, Errno> {
    let mut ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
    // SAFETY: the id is alive, and the result has a place.
    errno::of_call(|| unsafe { ffi::rdma_get_remote_ece(id.as_ptr(), &raw mut ece) })?;
    Ok(Ece { vendor_id: ece.vendor_id, options: ece.options })
}

/// Converts the parameters to librdmacm's form, which points at the private data.
fn conn_param(param: &ConnParam, private_data: &[u8]) -> Result<rdma_conn_param, Errno> {
    Ok(rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).map_err(|_| Errno::EINVAL)?,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: u8::from(param.flow_control),
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        // If the id has a QP, librdmacm takes these two from the QP.
        srq: u8::from(param.srq),
        qp_num: param.qp_num,
    })
}
