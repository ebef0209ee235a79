//! Posting to a send queue by the calls of ibv_wr_post(3): no request is built in memory, and the provider writes only
//! the fields of the operation.

use core::mem;
use core::ptr::{self, NonNull};

use cmid_proto::Errno;
use cmid_proto::datapath::{Remote, SendFlags, SendOp};

use crate::data::Ah;
use crate::data::ranges::EMPTY;
use crate::data::request::flags_of;
use crate::errno;
use crate::ffi::{self, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_create_send_ops_flags as Ops, ibv_qp_ex, ibv_sge};

/// The calls that post to the send queue of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PostCalls {
    /// Those of ibv_wr_post(3), which cost less. [`PostCalls::Classic`] replaces them if the provider lacks them, and
    /// on a QP with several ranges per request or none ([`Caps::max_send_sge`](crate::Caps::max_send_sge)): soft-RoCE's
    /// library before version 64 miscounts the bytes of several ranges. Also on iWARP, and with bnxt_re, hns and ionic.
    #[default]
    Extended,
    /// ibv_post_send(3).
    Classic,
}

/// The operations of a connected QP.
const CONNECTED: u64 = (Ops::IBV_QP_EX_WITH_SEND.0
    | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0
    | Ops::IBV_QP_EX_WITH_SEND_WITH_INV.0
    | Ops::IBV_QP_EX_WITH_RDMA_WRITE.0
    | Ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
    | Ops::IBV_QP_EX_WITH_RDMA_READ.0
    | Ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
    | Ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0
    | Ops::IBV_QP_EX_WITH_BIND_MW.0
    | Ops::IBV_QP_EX_WITH_LOCAL_INV.0) as u64;
/// The operations of a datagram QP.
const DATAGRAM: u64 = (Ops::IBV_QP_EX_WITH_SEND.0 | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0) as u64;

/// The operations that a QP is created with (`send_ops_flags`).
pub(super) const fn send_ops(datagrams: bool) -> u64 {
    if datagrams { DATAGRAM } else { CONNECTED }
}

/// The extended calls of one QP. The functions of all operations that the QP was created with are set.
#[derive(Clone, Copy)]
pub(super) struct WrApi(NonNull<ibv_qp_ex>);

// SAFETY: as for `QpInner`.
unsafe impl Send for WrApi {}
// SAFETY: as for `QpInner`.
unsafe impl Sync for WrApi {}

/// Calls a function of the QP.
macro_rules! wr {
    ($qp:expr, $function:ident $(, $argument:expr)*) => {{
        let qp = $qp;
        // `of` has checked that the function is set.
        match (*qp).$function {
            Some(function) => function(qp $(, $argument)*),
            None => core::hint::unreachable_unchecked(),
        }
    }};
}

impl WrApi {
    /// Returns the extended calls of a QP; `None` if its provider lacks one that this kind of QP needs.
    ///
    /// # Safety
    /// The QP is alive, and `ibv_create_qp_ex` has made it: the others may have no memory for the fields that
    /// `ibv_qp_to_qp_ex` reads (libsiw's `siw_qp`). It has the operations of its kind ([`send_ops`]).
    pub(super) unsafe fn of(qp: NonNull<ibv_qp>, datagrams: bool) -> Option<Self> {
        // SAFETY: the QP is alive and has the fields. The result is null or its extended form, which lives as long.
        let ex = NonNull::new(unsafe { ffi::ibv_qp_to_qp_ex(qp.as_ptr()) })?;
        // SAFETY: as above; nothing writes to it meanwhile, because no other code has the QP yet.
        let calls = unsafe { ex.as_ref() };
        let common = calls.wr_start.is_some()
            && calls.wr_complete.is_some()
            && calls.wr_abort.is_some()
            && calls.wr_set_sge.is_some()
            && calls.wr_set_sge_list.is_some()
            && calls.wr_set_inline_data.is_some()
            && calls.wr_send.is_some()
            && calls.wr_send_imm.is_some();
        let own = if datagrams {
            calls.wr_set_ud_addr.is_some()
        } else {
            calls.wr_send_inv.is_some()
                && calls.wr_rdma_write.is_some()
                && calls.wr_rdma_write_imm.is_some()
                && calls.wr_rdma_read.is_some()
                && calls.wr_atomic_cmp_swp.is_some()
                && calls.wr_atomic_fetch_add.is_some()
                && calls.wr_bind_mw.is_some()
                && calls.wr_local_inv.is_some()
        };
        (common && own).then_some(WrApi(ex))
    }

    /// Begins a batch (`ibv_wr_start`), which locks the send queue.
    ///
    /// # Safety
    /// The QP lives as long as the batch, and no other code posts to its send queue meanwhile.
    pub(super) unsafe fn start(self) -> Batch {
        // SAFETY: the QP is alive, and the function is set.
        unsafe { wr!(self.0.as_ptr(), wr_start) };
        Batch(self.0)
    }
}

/// The local memory of a request: at most one range, because soft-RoCE's library before version 64 miscounts the bytes
/// of several (`wr_set_sge_list`, `wr_set_inline_data_list`).
pub(super) enum Payload {
    Empty,
    Range(ibv_sge),
    /// The post copies the range.
    Inline(ibv_sge),
}

impl Payload {
    pub(super) fn of(sge: ibv_sge, is_inline: bool) -> Self {
        match sge {
            ibv_sge { length: 0, .. } => Payload::Empty,
            sge if is_inline => Payload::Inline(sge),
            sge => Payload::Range(sge),
        }
    }

    /// Returns the payload of at most one range. A QP with several ranges per request does not use the extended calls.
    pub(super) fn of_first(sges: &[ibv_sge], is_inline: bool) -> Self {
        sges.first().map_or(Payload::Empty, |sge| Payload::of(*sge, is_inline))
    }
}

/// Requests that [`Batch::complete`] posts together. Dropping it posts none of them (`ibv_wr_abort`). It stays inside
/// this crate, because a forgotten batch leaves the send queue locked.
#[must_use]
pub(super) struct Batch(NonNull<ibv_qp_ex>);

impl Batch {
    /// Adds a request.
    ///
    /// # Safety
    /// This kind of QP has the operation, and an address handle is of its PD. The memory is alive until
    /// [`Batch::complete`] has returned, and, if it is not inline, until the completion is polled. It is writable if
    /// the operation writes to it.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, token: u64, op: SendOp<'_, Ah>, flags: SendFlags, payload: Payload) {
        // The kernel part of rxe takes inline data from the queue only if this flag is set. ibv_wr_post(3) does not set
        // it. Other providers ignore it.
        let flags = flags_of(flags, matches!(payload, Payload::Inline(_)));
        let qp = self.0.as_ptr();
        // SAFETY: the QP is alive, its send queue locked by `start`, and the functions are set. The caller guarantees
        // the rest.
        unsafe {
            self.begin(token, flags);
            match op {
                SendOp::Send => wr!(qp, wr_send),
                SendOp::SendImm(imm) => wr!(qp, wr_send_imm, imm.to_be()),
                SendOp::SendInvalidate(rkey) => wr!(qp, wr_send_inv, rkey),
                SendOp::SendTo(to) => {
                    wr!(qp, wr_send);
                    wr!(qp, wr_set_ud_addr, to.ah.as_ptr(), to.qp_num, to.qkey);
                }
                SendOp::SendToImm(to, imm) => {
                    wr!(qp, wr_send_imm, imm.to_be());
                    wr!(qp, wr_set_ud_addr, to.ah.as_ptr(), to.qp_num, to.qkey);
                }
                SendOp::Write(Remote { addr, rkey }) => wr!(qp, wr_rdma_write, rkey, addr),
                SendOp::WriteImm(Remote { addr, rkey }, imm) => wr!(qp, wr_rdma_write_imm, rkey, addr, imm.to_be()),
                SendOp::Read(Remote { addr, rkey }) => wr!(qp, wr_rdma_read, rkey, addr),
                SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap } => {
                    wr!(qp, wr_atomic_cmp_swp, rkey, addr, compare, swap);
                }
                SendOp::FetchAdd { remote: Remote { addr, rkey }, add } => {
                    wr!(qp, wr_atomic_fetch_add, rkey, addr, add)
                }
            }
            match payload {
                Payload::Empty => wr!(qp, wr_set_sge_list, 0, ptr::from_ref(&EMPTY)),
                Payload::Range(sge) => wr!(qp, wr_set_sge, sge.lkey, sge.addr, sge.length),
                Payload::Inline(sge) => {
                    let from = ptr::with_exposed_provenance_mut(sge.addr as usize);
                    wr!(qp, wr_set_inline_data, from, sge.length as usize);
                }
            }
        }
    }

    /// Adds a signaled request that binds a window.
    ///
    /// # Safety
    /// The QP is connected. Window and registration are of its PD, and alive during the call.
    pub(super) unsafe fn push_bind(&mut self, token: u64, window: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) {
        // SAFETY: as in `push`; the provider reads window, registration and `info` during the call.
        unsafe {
            self.begin(token, SendFlags::SIGNALED.bits());
            wr!(self.0.as_ptr(), wr_bind_mw, window, rkey, info);
        }
    }

    /// Adds a signaled request that invalidates a local key.
    ///
    /// # Safety
    /// The QP is connected.
    pub(super) unsafe fn push_invalidate(&mut self, token: u64, rkey: u32) {
        // SAFETY: as in `push`.
        unsafe {
            self.begin(token, SendFlags::SIGNALED.bits());
            wr!(self.0.as_ptr(), wr_local_inv, rkey);
        }
    }

    /// # Safety
    /// The QP is alive.
    unsafe fn begin(&mut self, token: u64, flags: u32) {
        let qp = self.0.as_ptr();
        // SAFETY: the QP is alive, and its send queue locked by `start`.
        unsafe {
            (*qp).wr_id = token;
            (*qp).wr_flags = flags;
        }
    }

    /// Posts all requests with one doorbell (`ibv_wr_complete`).
    ///
    /// # Errors
    /// The errno of the provider. It may execute the requests nevertheless: soft-RoCE's library has queued them when
    /// the kernel refuses the doorbell.
    #[inline(always)]
    pub(super) fn complete(self) -> Result<(), Errno> {
        let qp = self.0.as_ptr();
        mem::forget(self);
        // SAFETY: the QP is alive (`start`), and the function is set. It always unlocks the queue.
        errno::of_posted(unsafe { wr!(qp, wr_complete) })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: the QP is alive (`start`), the function is set, and `complete` was not called.
        unsafe { wr!(self.0.as_ptr(), wr_abort) }
    }
}
