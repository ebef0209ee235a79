//! Posting to a send queue by the calls of ibv_wr_post(3): no request is built in memory, and the provider writes only
//! the fields of the operation.

use core::mem;
use core::ptr::{self, NonNull};

use cmid_proto::Errno;
use cmid_proto::datapath::{Remote, SendFlags, SendOp};

use crate::data::Ah;
use crate::errno;
use crate::ffi::{
    self, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_create_send_ops_flags as Ops, ibv_qp_ex, ibv_send_flags, ibv_sge,
};

/// The calls that post to the send queue of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PostCalls {
    /// Those of ibv_wr_post(3), which cost less. The others are used where the provider lacks these, and by a QP whose
    /// requests may have several ranges ([`Caps::max_send_sge`](crate::Caps::max_send_sge)): soft-RoCE's library before version 64 miscounts their
    /// bytes.
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

/// The extended calls of one QP. Each function of the operations that the QP was created with is there.
#[derive(Clone, Copy)]
pub(super) struct WrApi(NonNull<ibv_qp_ex>);

// SAFETY: as the QP itself (`QpInner`).
unsafe impl Send for WrApi {}
// SAFETY: as the QP itself (`QpInner`).
unsafe impl Sync for WrApi {}

/// Calls a function of the QP.
macro_rules! wr {
    ($qp:expr, $function:ident $(, $argument:expr)*) => {{
        let qp = $qp;
        // `of` has checked that the function is there.
        match (*qp).$function {
            Some(function) => function(qp $(, $argument)*),
            None => core::hint::unreachable_unchecked(),
        }
    }};
}

impl WrApi {
    /// The extended calls of a QP; `None` if its provider has not all of those that the kind of QP needs.
    ///
    /// # Safety
    /// The QP is alive.
    pub(super) unsafe fn of(qp: NonNull<ibv_qp>, datagrams: bool) -> Option<Self> {
        // SAFETY: the QP is alive. The result is null, or its extended form, which lives as long.
        let ex = NonNull::new(unsafe { ffi::ibv_qp_to_qp_ex(qp.as_ptr()) })?;
        // SAFETY: as above; nothing writes to it meanwhile, because nobody else has the QP yet.
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
    /// The QP is alive as long as the batch is, and nobody posts to its send queue meanwhile.
    #[inline(always)]
    pub(super) unsafe fn start(self) -> Batch {
        // SAFETY: the QP is alive, and the function is there.
        unsafe { wr!(self.0.as_ptr(), wr_start) };
        Batch(self.0)
    }
}

/// The local memory of a request: at most one range, because rxe's library before version 64 miscounts the bytes of
/// several (`wr_set_sge_list`, `wr_set_inline_data_list`).
pub(super) enum Payload {
    Empty,
    Range(ibv_sge),
    /// Copied while posting.
    Inline(ibv_sge),
}

impl Payload {
    #[inline(always)]
    pub(super) fn of(sge: ibv_sge, is_inline: bool) -> Self {
        match sge {
            ibv_sge { length: 0, .. } => Payload::Empty,
            sge if is_inline => Payload::Inline(sge),
            sge => Payload::Range(sge),
        }
    }

    /// The only range, or none: a QP for several does not use the extended calls.
    pub(super) fn of_first(sges: &[ibv_sge], is_inline: bool) -> Self {
        sges.first().map_or(Payload::Empty, |sge| Payload::of(*sge, is_inline))
    }
}

/// Requests that are posted together, by [`Batch::complete`]. Dropping it posts none of them (`ibv_wr_abort`). It stays
/// inside this crate: one that is forgotten leaves the send queue locked.
#[must_use]
pub(super) struct Batch(NonNull<ibv_qp_ex>);

impl Batch {
    /// Adds a request.
    ///
    /// # Safety
    /// The operation is one of this kind of QP, and an address handle is of its PD. The memory is alive until
    /// [`Batch::complete`] has returned, and, if it is not inline, until the completion is polled; it may be written to
    /// if the operation writes to it.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, token: u64, op: SendOp<'_, Ah>, flags: SendFlags, payload: Payload) {
        // rxe's kernel part takes the data from the queue only if the flag is set, which has no place in
        // ibv_wr_post(3). Other providers ignore it.
        let inline_flag = if matches!(payload, Payload::Inline(_)) { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
        let qp = self.0.as_ptr();
        // SAFETY: the QP is alive and locked by `start`, and the functions are there. The rest is the caller's.
        unsafe {
            self.begin(token, flags.bits() | inline_flag);
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
                Payload::Empty => wr!(qp, wr_set_sge_list, 0, NonNull::dangling().as_ptr()),
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
    /// Of a connected QP, whose PD is that of window and registration; both are alive during the call.
    pub(super) unsafe fn push_bind(&mut self, token: u64, window: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) {
        // SAFETY: as in `push`; the provider reads window, registration and `info` during the call.
        unsafe {
            self.begin(token, SendFlags::SIGNALED.bits());
            wr!(self.0.as_ptr(), wr_bind_mw, window, rkey, info);
        }
    }

    /// Adds a signaled request that takes back a local key.
    ///
    /// # Safety
    /// Of a connected QP.
    pub(super) unsafe fn push_invalidate(&mut self, token: u64, rkey: u32) {
        // SAFETY: as in `push`.
        unsafe {
            self.begin(token, SendFlags::SIGNALED.bits());
            wr!(self.0.as_ptr(), wr_local_inv, rkey);
        }
    }

    /// # Safety
    /// The QP is alive.
    #[inline(always)]
    unsafe fn begin(&mut self, token: u64, flags: u32) {
        let qp = self.0.as_ptr();
        // SAFETY: the QP is alive, and locked by `start`.
        unsafe {
            (*qp).wr_id = token;
            (*qp).wr_flags = flags;
        }
    }

    /// Posts all requests with one doorbell (`ibv_wr_complete`).
    ///
    /// # Errors
    /// The errno of the provider: none is posted.
    #[inline(always)]
    pub(super) fn complete(self) -> Result<(), Errno> {
        let qp = self.0.as_ptr();
        mem::forget(self);
        // SAFETY: the QP is alive (`start`), and the function is there. It unlocks the queue in any case.
        errno::of_ibv(unsafe { wr!(qp, wr_complete) })
    }
}

impl Drop for Batch {
    // Not inlined it would keep the batch in memory.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the QP is alive (`start`), the function is there, and `complete` was not called.
        unsafe { wr!(self.0.as_ptr(), wr_abort) }
    }
}
