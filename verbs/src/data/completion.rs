//! Asserts that a [`Completion`] has the layout of `struct ibv_wc` and the numbers of libibverbs.

use core::mem::offset_of;

use cmid_proto::datapath::{Completion, WcFlags, WcOpcode, WcStatus};

use crate::ffi::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

// `poll` passes a slice of completions to C as an array of ibv_wc. Every bit pattern is a value of both.
static_assertions::const_assert!(size_of::<Completion>() == size_of::<ibv_wc>());
static_assertions::const_assert!(align_of::<Completion>() == align_of::<ibv_wc>());
static_assertions::const_assert!(offset_of!(Completion, wr_id) == offset_of!(ibv_wc, wr_id));
static_assertions::const_assert!(offset_of!(Completion, status) == offset_of!(ibv_wc, status));
static_assertions::const_assert!(offset_of!(Completion, opcode) == offset_of!(ibv_wc, opcode));
static_assertions::const_assert!(offset_of!(Completion, vendor_err) == offset_of!(ibv_wc, vendor_err));
static_assertions::const_assert!(offset_of!(Completion, byte_len) == offset_of!(ibv_wc, byte_len));
static_assertions::const_assert!(
    offset_of!(Completion, imm_data) == offset_of!(ibv_wc, imm_data_invalidated_rkey_union)
);
static_assertions::const_assert!(offset_of!(Completion, qp_num) == offset_of!(ibv_wc, qp_num));
static_assertions::const_assert!(offset_of!(Completion, src_qp) == offset_of!(ibv_wc, src_qp));
static_assertions::const_assert!(offset_of!(Completion, flags) == offset_of!(ibv_wc, wc_flags));
static_assertions::const_assert!(offset_of!(Completion, pkey_index) == offset_of!(ibv_wc, pkey_index));
static_assertions::const_assert!(offset_of!(Completion, slid) == offset_of!(ibv_wc, slid));
static_assertions::const_assert!(offset_of!(Completion, sl) == offset_of!(ibv_wc, sl));
static_assertions::const_assert!(offset_of!(Completion, dlid_path_bits) == offset_of!(ibv_wc, dlid_path_bits));

static_assertions::const_assert!(WcStatus::SUCCESS.0 == ibv_wc_status::IBV_WC_SUCCESS);
static_assertions::const_assert!(WcStatus::LOC_LEN_ERR.0 == ibv_wc_status::IBV_WC_LOC_LEN_ERR);
static_assertions::const_assert!(WcStatus::LOC_QP_OP_ERR.0 == ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
static_assertions::const_assert!(WcStatus::LOC_EEC_OP_ERR.0 == ibv_wc_status::IBV_WC_LOC_EEC_OP_ERR);
static_assertions::const_assert!(WcStatus::LOC_PROT_ERR.0 == ibv_wc_status::IBV_WC_LOC_PROT_ERR);
static_assertions::const_assert!(WcStatus::WR_FLUSH_ERR.0 == ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
static_assertions::const_assert!(WcStatus::MW_BIND_ERR.0 == ibv_wc_status::IBV_WC_MW_BIND_ERR);
static_assertions::const_assert!(WcStatus::BAD_RESP_ERR.0 == ibv_wc_status::IBV_WC_BAD_RESP_ERR);
static_assertions::const_assert!(WcStatus::LOC_ACCESS_ERR.0 == ibv_wc_status::IBV_WC_LOC_ACCESS_ERR);
static_assertions::const_assert!(WcStatus::REM_INV_REQ_ERR.0 == ibv_wc_status::IBV_WC_REM_INV_REQ_ERR);
static_assertions::const_assert!(WcStatus::REM_ACCESS_ERR.0 == ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
static_assertions::const_assert!(WcStatus::REM_OP_ERR.0 == ibv_wc_status::IBV_WC_REM_OP_ERR);
static_assertions::const_assert!(WcStatus::RETRY_EXC_ERR.0 == ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
static_assertions::const_assert!(WcStatus::RNR_RETRY_EXC_ERR.0 == ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
static_assertions::const_assert!(WcStatus::REM_ABORT_ERR.0 == ibv_wc_status::IBV_WC_REM_ABORT_ERR);
static_assertions::const_assert!(WcStatus::FATAL_ERR.0 == ibv_wc_status::IBV_WC_FATAL_ERR);
static_assertions::const_assert!(WcStatus::RESP_TIMEOUT_ERR.0 == ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR);
static_assertions::const_assert!(WcStatus::GENERAL_ERR.0 == ibv_wc_status::IBV_WC_GENERAL_ERR);

static_assertions::const_assert!(WcOpcode::SEND.0 == ibv_wc_opcode::IBV_WC_SEND);
static_assertions::const_assert!(WcOpcode::RDMA_WRITE.0 == ibv_wc_opcode::IBV_WC_RDMA_WRITE);
static_assertions::const_assert!(WcOpcode::RDMA_READ.0 == ibv_wc_opcode::IBV_WC_RDMA_READ);
static_assertions::const_assert!(WcOpcode::COMP_SWAP.0 == ibv_wc_opcode::IBV_WC_COMP_SWAP);
static_assertions::const_assert!(WcOpcode::FETCH_ADD.0 == ibv_wc_opcode::IBV_WC_FETCH_ADD);
static_assertions::const_assert!(WcOpcode::BIND_MW.0 == ibv_wc_opcode::IBV_WC_BIND_MW);
static_assertions::const_assert!(WcOpcode::LOCAL_INV.0 == ibv_wc_opcode::IBV_WC_LOCAL_INV);
static_assertions::const_assert!(WcOpcode::RECV.0 == ibv_wc_opcode::IBV_WC_RECV);
static_assertions::const_assert!(WcOpcode::RECV_RDMA_WITH_IMM.0 == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM);

static_assertions::const_assert!(WcFlags::GRH.bits() == ibv_wc_flags::IBV_WC_GRH.0);
static_assertions::const_assert!(WcFlags::WITH_IMM.bits() == ibv_wc_flags::IBV_WC_WITH_IMM.0);
static_assertions::const_assert!(WcFlags::IP_CSUM_OK.bits() == ibv_wc_flags::IBV_WC_IP_CSUM_OK.0);
static_assertions::const_assert!(WcFlags::WITH_INV.bits() == ibv_wc_flags::IBV_WC_WITH_INV.0);
