//! Completions.

use super::numbers::names;
use crate::words::debug_in_words;

/// A completion (`struct ibv_wc`). It has the layout of the C structure, so libibverbs can fill it in place.
///
/// If [`status`](Completion::status) is not [`WcStatus::SUCCESS`], only `wr_id`, `status`, `opcode`, `qp_num` and
/// `vendor_err` are valid (ibv_poll_cq(3); the `opcode` is that of the request, which providers do not set then).
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Completion {
    /// The number of the work request.
    pub wr_id: u64,
    /// Its status.
    pub status: WcStatus,
    /// Its opcode.
    pub opcode: WcOpcode,
    /// The error code of the provider after a failure.
    pub vendor_err: u32,
    /// The number of bytes received or read; for a datagram including [`GRH_LEN`](super::GRH_LEN).
    pub byte_len: u32,
    /// The immediate data in network byte order, or the invalidated key: see [`Completion::imm`] and
    /// [`Completion::invalidated_rkey`].
    pub imm_data: u32,
    /// The number of the QP of the work request.
    pub qp_num: u32,
    /// The number of the QP that sent a received datagram.
    pub src_qp: u32,
    /// Which of the other fields are valid.
    pub flags: WcFlags,
    /// The index of the P_Key of a datagram; InfiniBand only.
    pub pkey_index: u16,
    /// The LID of the sender of a datagram; InfiniBand only.
    pub slid: u16,
    /// The service level of a datagram.
    pub sl: u8,
    /// Bits of the destination LID of a datagram; InfiniBand only.
    pub dlid_path_bits: u8,
}

impl Completion {
    /// Whether the work request succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == WcStatus::SUCCESS
    }

    /// Returns the immediate data of a received message, in the byte order of the host. `None` for a completion of the
    /// send queue: soft-RoCE sets [`WcFlags::WITH_IMM`] there too.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        (self.opcode.is_recv() && self.flags.contains(WcFlags::WITH_IMM)).then(|| u32::from_be(self.imm_data))
    }

    /// Returns the remote key of this side that the sender has invalidated. `None` on soft-RoCE, which sets
    /// [`WcFlags::IP_CSUM_OK`] instead of [`WcFlags::WITH_INV`]: there the key is in `imm_data`.
    #[must_use]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_INV).then_some(self.imm_data)
    }

    /// Whether the [`GRH_LEN`](super::GRH_LEN) bytes before a datagram are a header. Always true on RoCE. Without
    /// meaning for a message of a connection, where soft-RoCE sets the flag too.
    #[must_use]
    pub fn has_grh(&self) -> bool {
        self.flags.contains(WcFlags::GRH)
    }
}

bitflags::bitflags! {
    /// Flags of a completion (`enum ibv_wc_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct WcFlags: u32 {
        /// A datagram has a global route header.
        const GRH = 1;
        /// There is immediate data.
        const WITH_IMM = 1 << 1;
        /// The hardware has verified the IP checksum. Soft-RoCE sets this flag instead of [`WcFlags::WITH_INV`].
        const IP_CSUM_OK = 1 << 2;
        /// The sender has invalidated a key.
        const WITH_INV = 1 << 3;
        /// Other flags of a provider.
        const _ = !0;
    }
}

/// The opcode of a completion (`enum ibv_wc_opcode`).
#[doc(alias = "ibv_wc_opcode")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct WcOpcode(pub u32);

names! { WcOpcode, other "opcode";
    /// A send, or a datagram.
    SEND = 0;
    /// An RDMA write, with or without immediate data.
    RDMA_WRITE = 1;
    /// An RDMA read.
    RDMA_READ = 2;
    /// An atomic compare and swap.
    COMP_SWAP = 3;
    /// An atomic fetch and add.
    FETCH_ADD = 4;
    /// The bind of a memory window.
    BIND_MW = 5;
    /// The invalidation of a memory window.
    LOCAL_INV = 6;
    /// A receive that a send has consumed.
    RECV = 128;
    /// A receive that a write with immediate data has consumed. The data is in the memory that the write named.
    RECV_RDMA_WITH_IMM = 129;
}

impl WcOpcode {
    /// Whether this is an opcode of a receive: `IBV_WC_RECV` is a bit that all of them have.
    #[must_use]
    pub const fn is_recv(self) -> bool {
        self.0 & WcOpcode::RECV.0 != 0
    }
}

/// The status of a completion (`enum ibv_wc_status`, ibv_poll_cq(3)).
#[doc(alias("ibv_wc_status", "ibv_wc_status_str"))]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct WcStatus(pub u32);

// The `Debug` form of a completion shows why its request has failed.
debug_in_words!(WcStatus);

names! { WcStatus, other "status";
    /// Success.
    SUCCESS = 0, "success";
    /// The message is longer than the receive that was posted for it, or than the device can send.
    LOC_LEN_ERR = 1, "local length error";
    /// The QP cannot do the operation.
    LOC_QP_OP_ERR = 2, "local QP operation error";
    /// An end-to-end context failed.
    LOC_EEC_OP_ERR = 3, "local EE context operation error";
    /// The local memory is not registered, is of another PD, or lacks a right.
    LOC_PROT_ERR = 4, "local protection error";
    /// The QP was in its error state, or entered it before the request was complete.
    WR_FLUSH_ERR = 5, "work request flushed";
    /// The memory window cannot be bound with these parameters.
    MW_BIND_ERR = 6, "memory window bind error";
    /// The peer sent an invalid response.
    BAD_RESP_ERR = 7, "bad response";
    /// The local memory of a receive cannot be used.
    LOC_ACCESS_ERR = 8, "local access error";
    /// The peer found the request invalid: its receive is too short, or an atomic operation is not aligned.
    REM_INV_REQ_ERR = 9, "remote invalid request error";
    /// The memory of the peer does not permit the access.
    REM_ACCESS_ERR = 10, "remote access error";
    /// The peer cannot complete the operation.
    REM_OP_ERR = 11, "remote operation error";
    /// The peer does not respond.
    RETRY_EXC_ERR = 12, "transport retry counter exceeded";
    /// The peer had no receive posted in any of the RNR retries.
    RNR_RETRY_EXC_ERR = 13, "RNR retry counter exceeded";
    /// The peer aborted the operation.
    REM_ABORT_ERR = 16, "remote aborted";
    /// The QP has failed.
    FATAL_ERR = 19, "fatal error";
    /// The response took too long.
    RESP_TIMEOUT_ERR = 20, "response timeout";
    /// Another failure of the device.
    GENERAL_ERR = 21, "general error";
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn immediate_data_and_an_invalidated_key_have_their_flags() {
        let completion = Completion { imm_data: 7_u32.to_be(), opcode: WcOpcode::RECV, ..Completion::default() };
        assert_eq!((completion.imm(), completion.invalidated_rkey()), (None, None));
        let with = |flags| Completion { flags, ..completion };
        assert_eq!(with(WcFlags::WITH_IMM).imm(), Some(7));
        assert_eq!(Completion { opcode: WcOpcode::SEND, ..with(WcFlags::WITH_IMM) }.imm(), None);
        assert_eq!(with(WcFlags::WITH_INV).invalidated_rkey(), Some(7_u32.to_be()));
    }

    #[test]
    fn statuses_and_opcodes_have_their_names() {
        assert_eq!(WcStatus::RNR_RETRY_EXC_ERR.to_string(), "RNR retry counter exceeded");
        assert_eq!((WcStatus(99).to_string(), WcOpcode(99).to_string()), ("status 99".into(), "opcode 99".into()));
        assert_eq!(WcOpcode::RECV_RDMA_WITH_IMM.to_string(), "RECV_RDMA_WITH_IMM");
        assert!(WcOpcode::RECV_RDMA_WITH_IMM.is_recv() && !WcOpcode::LOCAL_INV.is_recv());
    }
}
