//! Completions.

use core::mem::offset_of;

use crate::ffi::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

/// One completion, laid out as `struct ibv_wc`, so that the device's library fills it in place.
///
/// Of a failed one only `wr_id`, `status` and `qp_num` mean something (ibv_poll_cq(3)).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Completion {
    /// The number that was given when posting.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was: one of the constants of this type.
    pub opcode: u32,
    vendor_err: u32,
    /// How many bytes were received or read; for a datagram with the [`GRH_LEN`](crate::GRH_LEN) bytes in front.
    pub byte_len: u32,
    imm_data: u32,
    /// The number of the QP that it was posted to.
    pub qp_num: u32,
    /// For a datagram that was received, the QP that sent it.
    pub src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

// `poll` hands a slice of these to C as an array of ibv_wc.
const _: () = assert!(size_of::<Completion>() == size_of::<ibv_wc>());
const _: () = assert!(align_of::<Completion>() == align_of::<ibv_wc>());
const _: () = assert!(offset_of!(Completion, wr_id) == offset_of!(ibv_wc, wr_id));
const _: () = assert!(offset_of!(Completion, status) == offset_of!(ibv_wc, status));
const _: () = assert!(offset_of!(Completion, opcode) == offset_of!(ibv_wc, opcode));
const _: () = assert!(offset_of!(Completion, vendor_err) == offset_of!(ibv_wc, vendor_err));
const _: () = assert!(offset_of!(Completion, byte_len) == offset_of!(ibv_wc, byte_len));
const _: () = assert!(offset_of!(Completion, qp_num) == offset_of!(ibv_wc, qp_num));
const _: () = assert!(offset_of!(Completion, src_qp) == offset_of!(ibv_wc, src_qp));
const _: () = assert!(offset_of!(Completion, wc_flags) == offset_of!(ibv_wc, wc_flags));
const _: () = assert!(offset_of!(Completion, slid) == offset_of!(ibv_wc, slid));
const _: () = assert!(offset_of!(Completion, sl) == offset_of!(ibv_wc, sl));
const _: () = assert!(offset_of!(Completion, dlid_path_bits) == offset_of!(ibv_wc, dlid_path_bits));

impl Completion {
    /// [`Qp::post_send`](crate::Qp::post_send) (`IBV_WC_SEND`).
    pub const SEND: u32 = ibv_wc_opcode::IBV_WC_SEND;
    /// [`Qp::post_write`](crate::Qp::post_write) (`IBV_WC_RDMA_WRITE`).
    pub const WRITE: u32 = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
    /// [`Qp::post_read`](crate::Qp::post_read) (`IBV_WC_RDMA_READ`).
    pub const READ: u32 = ibv_wc_opcode::IBV_WC_RDMA_READ;
    /// [`Qp::post_recv`](crate::Qp::post_recv) (`IBV_WC_RECV`).
    pub const RECV: u32 = ibv_wc_opcode::IBV_WC_RECV;

    /// [`Qp::post_bind`](crate::Qp::post_bind) (`IBV_WC_BIND_MW`).
    pub const BIND: u32 = ibv_wc_opcode::IBV_WC_BIND_MW;
    /// [`Qp::post_invalidate`](crate::Qp::post_invalidate) (`IBV_WC_LOCAL_INV`).
    pub const INVALIDATE: u32 = ibv_wc_opcode::IBV_WC_LOCAL_INV;

    /// Whether a datagram that was received has a global route header in front, and not just room for one. On RoCE
    /// always.
    #[must_use]
    pub fn has_grh(&self) -> bool {
        self.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0
    }
}

/// How a work request ended (`enum ibv_wc_status`, ibv_poll_cq(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// It was done.
    pub const SUCCESS: WcStatus = WcStatus(ibv_wc_status::IBV_WC_SUCCESS);
    /// The message did not fit, here or in the receive buffer.
    pub const LOC_LEN_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    /// The local memory was not registered, not of this PD, or without the right that it takes.
    pub const LOC_PROT_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    /// Not done: the QP was in the error state, or went there.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    /// The peer's memory may not be used so.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    /// The peer does not answer.
    pub const RETRY_EXC_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    /// The peer had no receive posted for too long.
    pub const RNR_RETRY_EXC_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
}
