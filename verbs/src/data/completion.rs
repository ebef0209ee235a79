//! Asserts that a [`Completion`] has the layout of `struct ibv_wc`.

use core::mem::offset_of;

use cmid_proto::datapath::Completion;

use crate::ffi::ibv_wc;

macro_rules! same_places {
    ($($ours:ident = $theirs:ident),+) => {
        $( static_assertions::const_assert!(offset_of!(Completion, $ours) == offset_of!(ibv_wc, $theirs)); )+
    };
}

// `poll` passes a slice of completions to C as an array of ibv_wc. Every bit pattern is a value of both.
static_assertions::assert_eq_size!(Completion, ibv_wc);
static_assertions::assert_eq_align!(Completion, ibv_wc);
same_places!(wr_id = wr_id, status = status, opcode = opcode, vendor_err = vendor_err, byte_len = byte_len);
same_places!(imm_data = imm_data_invalidated_rkey_union, qp_num = qp_num, src_qp = src_qp, flags = wc_flags);
same_places!(pkey_index = pkey_index, slid = slid, sl = sl, dlid_path_bits = dlid_path_bits);
