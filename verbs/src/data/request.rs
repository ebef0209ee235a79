//! Work requests in the form of ibv_post_send(3).

use core::mem::MaybeUninit;

use cmid_proto::datapath::{Remote, SendFlags, SendOp, To, WcOpcode};

use crate::accounting::kind::Kind;
use crate::data::Ah;
use crate::ffi::{
    atomic_t, ibv_send_flags, ibv_send_wr, ibv_wr_opcode, imm_data_invalidated_rkey_union_t, rdma_t, ud_t, wr_t,
};

/// Returns the flags for the provider: the defined ones only, because an application can make a [`SendFlags`] of any
/// bits. With `IBV_SEND_INLINE` a provider would copy a range into the queue that is longer than an entry of it.
pub(super) fn flags_of(flags: SendFlags, is_inline: bool) -> u32 {
    let inline_flag = if is_inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
    flags.bits() & SendFlags::all().bits() | inline_flag
}

/// Returns where a datagram goes; `None` for an operation of a connection.
pub(super) fn destination<'a>(op: &SendOp<'a, Ah>) -> Option<To<'a, Ah>> {
    if let SendOp::SendTo(to) | SendOp::SendToImm(to, _) = op { Some(*to) } else { None }
}

/// Returns what the accounting stores of a signaled request.
pub(super) fn kind_of(op: &SendOp<'_, Ah>) -> Kind {
    Kind::of(match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::SendTo(_) | SendOp::SendToImm(..) => {
            WcOpcode::SEND
        }
        SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RDMA_WRITE,
        SendOp::Read(_) => WcOpcode::RDMA_READ,
        SendOp::CompareSwap { .. } => WcOpcode::COMP_SWAP,
        SendOp::FetchAdd { .. } => WcOpcode::FETCH_ADD,
    })
}

/// Returns a work request without ranges.
pub(super) fn send_request(token: u64, op: SendOp<'_, Ah>, flags: SendFlags, is_inline: bool) -> ibv_send_wr {
    // SAFETY: zeros are a value of it: integers, null pointers, and unions of such.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.wr_id = token;
    request.send_flags = flags_of(flags, is_inline);
    let (opcode, peer) = match op {
        SendOp::Send => (ibv_wr_opcode::IBV_WR_SEND, None),
        SendOp::SendImm(_) => (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, None),
        // libsiw takes the key from where that of a write is (`push_send_wqe`).
        SendOp::SendInvalidate(rkey) => (ibv_wr_opcode::IBV_WR_SEND_WITH_INV, Some(rdma(Remote { addr: 0, rkey }))),
        SendOp::SendTo(to) => (ibv_wr_opcode::IBV_WR_SEND, Some(datagram(to.ah, to.qp_num, to.qkey))),
        SendOp::SendToImm(to, _) => (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, Some(datagram(to.ah, to.qp_num, to.qkey))),
        SendOp::Write(remote) => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, Some(rdma(remote))),
        SendOp::WriteImm(remote, _) => (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, Some(rdma(remote))),
        SendOp::Read(remote) => (ibv_wr_opcode::IBV_WR_RDMA_READ, Some(rdma(remote))),
        SendOp::CompareSwap { remote, compare, swap } => {
            (ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, Some(atomic(remote, compare, swap)))
        }
        SendOp::FetchAdd { remote, add } => (ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, Some(atomic(remote, add, 0))),
    };
    request.opcode = opcode;
    if let Some(peer) = peer {
        request.wr = peer;
    }
    match op {
        SendOp::SendImm(imm) | SendOp::SendToImm(_, imm) | SendOp::WriteImm(_, imm) => {
            request.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t { imm_data: imm.to_be() };
        }
        SendOp::SendInvalidate(rkey) => {
            request.imm_data_invalidated_rkey_union = imm_data_invalidated_rkey_union_t { invalidated_rkey: rkey };
        }
        SendOp::Send
        | SendOp::SendTo(_)
        | SendOp::Write(_)
        | SendOp::Read(_)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => {}
    }
    request
}

fn rdma(remote: Remote) -> wr_t {
    wr_t { rdma: rdma_t { remote_addr: remote.addr, rkey: remote.rkey } }
}

fn atomic(remote: Remote, compare_add: u64, swap: u64) -> wr_t {
    wr_t { atomic: atomic_t { remote_addr: remote.addr, compare_add, swap, rkey: remote.rkey } }
}

fn datagram(ah: &Ah, qp_num: u32, qkey: u32) -> wr_t {
    wr_t { ud: ud_t { ah: ah.as_ptr(), remote_qpn: qp_num, remote_qkey: qkey } }
}

/// Whether iWARP has the operation: it has neither immediate data nor atomic operations.
pub(super) fn is_of_iwarp(op: &SendOp<'_, Ah>) -> bool {
    match op {
        SendOp::Send | SendOp::SendInvalidate(_) | SendOp::Write(_) | SendOp::Read(_) => true,
        SendOp::SendImm(_)
        | SendOp::WriteImm(..)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. }
        | SendOp::SendTo(_)
        | SendOp::SendToImm(..) => false,
    }
}
