//! Completions.

use core::fmt;

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

impl WcOpcode {
    /// A send, or a datagram.
    pub const SEND: WcOpcode = WcOpcode(0);
    /// An RDMA write, with or without immediate data.
    pub const RDMA_WRITE: WcOpcode = WcOpcode(1);
    /// An RDMA read.
    pub const RDMA_READ: WcOpcode = WcOpcode(2);
    /// An atomic compare and swap.
    pub const COMP_SWAP: WcOpcode = WcOpcode(3);
    /// An atomic fetch and add.
    pub const FETCH_ADD: WcOpcode = WcOpcode(4);
    /// The bind of a memory window.
    pub const BIND_MW: WcOpcode = WcOpcode(5);
    /// The invalidation of a memory window.
    pub const LOCAL_INV: WcOpcode = WcOpcode(6);
    /// A receive that a send has consumed.
    pub const RECV: WcOpcode = WcOpcode(128);
    /// A receive that a write with immediate data has consumed. The data is in the memory that the write named.
    pub const RECV_RDMA_WITH_IMM: WcOpcode = WcOpcode(129);

    /// Whether this is an opcode of a receive: `IBV_WC_RECV` is a bit that all of them have.
    #[must_use]
    pub const fn is_recv(self) -> bool {
        self.0 & WcOpcode::RECV.0 != 0
    }
}

impl fmt::Display for WcOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            WcOpcode::SEND => "SEND",
            WcOpcode::RDMA_WRITE => "RDMA_WRITE",
            WcOpcode::RDMA_READ => "RDMA_READ",
            WcOpcode::COMP_SWAP => "COMP_SWAP",
            WcOpcode::FETCH_ADD => "FETCH_ADD",
            WcOpcode::BIND_MW => "BIND_MW",
            WcOpcode::LOCAL_INV => "LOCAL_INV",
            WcOpcode::RECV => "RECV",
            WcOpcode::RECV_RDMA_WITH_IMM => "RECV_RDMA_WITH_IMM",
            WcOpcode(other) => return write!(f, "opcode {other}"),
        })
    }
}

/// The status of a completion (`enum ibv_wc_status`, ibv_poll_cq(3)).
#[doc(alias("ibv_wc_status", "ibv_wc_status_str"))]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct WcStatus(pub u32);

/// In words: the [`Debug`](fmt::Debug) form of a completion shows why its request has failed.
impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl WcStatus {
    /// Success.
    pub const SUCCESS: WcStatus = WcStatus(0);
    /// The message is longer than the receive that was posted for it, or than the device can send.
    pub const LOC_LEN_ERR: WcStatus = WcStatus(1);
    /// The QP cannot do the operation.
    pub const LOC_QP_OP_ERR: WcStatus = WcStatus(2);
    /// An end-to-end context failed.
    pub const LOC_EEC_OP_ERR: WcStatus = WcStatus(3);
    /// The local memory is not registered, is of another PD, or lacks a right.
    pub const LOC_PROT_ERR: WcStatus = WcStatus(4);
    /// The QP was in its error state, or entered it before the request was complete.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(5);
    /// The memory window cannot be bound with these parameters.
    pub const MW_BIND_ERR: WcStatus = WcStatus(6);
    /// The peer sent an invalid response.
    pub const BAD_RESP_ERR: WcStatus = WcStatus(7);
    /// The local memory of a receive cannot be used.
    pub const LOC_ACCESS_ERR: WcStatus = WcStatus(8);
    /// The peer found the request invalid: its receive is too short, or an atomic operation is not aligned.
    pub const REM_INV_REQ_ERR: WcStatus = WcStatus(9);
    /// The memory of the peer does not permit the access.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(10);
    /// The peer cannot complete the operation.
    pub const REM_OP_ERR: WcStatus = WcStatus(11);
    /// The peer does not respond.
    pub const RETRY_EXC_ERR: WcStatus = WcStatus(12);
    /// The peer had no receive posted in any of the RNR retries.
    pub const RNR_RETRY_EXC_ERR: WcStatus = WcStatus(13);
    /// The peer aborted the operation.
    pub const REM_ABORT_ERR: WcStatus = WcStatus(16);
    /// The QP has failed.
    pub const FATAL_ERR: WcStatus = WcStatus(19);
    /// The response took too long.
    pub const RESP_TIMEOUT_ERR: WcStatus = WcStatus(20);
    /// Another failure of the device.
    pub const GENERAL_ERR: WcStatus = WcStatus(21);
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            WcStatus::SUCCESS => "success",
            WcStatus::LOC_LEN_ERR => "local length error",
            WcStatus::LOC_QP_OP_ERR => "local QP operation error",
            WcStatus::LOC_EEC_OP_ERR => "local EE context operation error",
            WcStatus::LOC_PROT_ERR => "local protection error",
            WcStatus::WR_FLUSH_ERR => "work request flushed",
            WcStatus::MW_BIND_ERR => "memory window bind error",
            WcStatus::BAD_RESP_ERR => "bad response",
            WcStatus::LOC_ACCESS_ERR => "local access error",
            WcStatus::REM_INV_REQ_ERR => "remote invalid request error",
            WcStatus::REM_ACCESS_ERR => "remote access error",
            WcStatus::REM_OP_ERR => "remote operation error",
            WcStatus::RETRY_EXC_ERR => "transport retry counter exceeded",
            WcStatus::RNR_RETRY_EXC_ERR => "RNR retry counter exceeded",
            WcStatus::REM_ABORT_ERR => "remote aborted",
            WcStatus::FATAL_ERR => "fatal error",
            WcStatus::RESP_TIMEOUT_ERR => "response timeout",
            WcStatus::GENERAL_ERR => "general error",
            WcStatus(other) => return write!(f, "status {other}"),
        })
    }
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
