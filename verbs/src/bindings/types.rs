//! The types of verbs.h and rdma_cma.h that this crate uses, with the names that the crate rdma-sys gives to the unnamed ones.

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// Declares structures and unions. `whole`: all fields of C's, so the size is the same. `start`, `end`: its first or last fields;
/// the libraries allocate it, and newer ones append or prepend fields. A literal is the name in C where Rust's is another one.
macro_rules! structures {
    ($(
        $kind:ident $name:ident($extent:ident $($c:literal)?) { $( $field:ident $($of_c:literal)?: $ty:ty, )+ }
    )+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name {
                $( pub $field: $ty, )+
            }
        )+

        /// For the comparison with the headers.
        #[cfg(test)]
        pub const STRUCTURES: &[Structure] = &[$( Structure {
            name: stringify!($kind $name),
            of_c: &[$($c)?],
            extent: stringify!($extent),
            size: size_of::<$name>(),
            fields: &[$( Field {
                name: stringify!($field),
                of_c: &[$($of_c)?],
                offset: core::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
                ty: stringify!($ty),
            }, )+],
        }, )+];
    };
}

/// Declares enums of C: as modules with numbers, because a library may return numbers that are not in the list; or, as rdma-sys
/// does with flags, as a type with constants. They list the constants that are used.
macro_rules! enums {
    (
        $( mod $module:ident: $int:ty { $( $constant:ident = $value:literal, )+ } )+
        $( struct $flags:ident { $( $flag:ident = $bits:literal, )+ } )+
    ) => {
        $(
            pub mod $module {
                pub type Type = $int;
                $( pub const $constant: Type = $value; )+
            }
        )+
        $(
            #[repr(transparent)]
            #[derive(Clone, Copy)]
            pub struct $flags(pub core::ffi::c_uint);

            impl $flags {
                $( pub const $flag: Self = Self($bits); )+
            }
        )+

        /// For the comparison with the headers.
        #[cfg(test)]
        pub const CONSTANTS: &[(&str, i64)] = &[
            $( $( (stringify!($constant), $value), )+ )+
            $( $( (stringify!($flag), $bits), )+ )+
        ];
    };
}

enums! {
    mod ibv_transport_type: core::ffi::c_int { IBV_TRANSPORT_IWARP = 1, }
    mod ibv_mw_type: core::ffi::c_uint { IBV_MW_TYPE_2 = 2, }
    mod ibv_qp_type: core::ffi::c_uint { IBV_QPT_RC = 2, IBV_QPT_UD = 4, }
    mod ibv_qp_state: core::ffi::c_uint { IBV_QPS_RTS = 3, IBV_QPS_SQD = 4, IBV_QPS_ERR = 6, }
    mod ibv_wr_opcode: core::ffi::c_uint {
        IBV_WR_RDMA_WRITE = 0, IBV_WR_RDMA_WRITE_WITH_IMM = 1, IBV_WR_SEND = 2, IBV_WR_SEND_WITH_IMM = 3, IBV_WR_RDMA_READ = 4,
        IBV_WR_ATOMIC_CMP_AND_SWP = 5, IBV_WR_ATOMIC_FETCH_AND_ADD = 6, IBV_WR_LOCAL_INV = 7, IBV_WR_BIND_MW = 8,
        IBV_WR_SEND_WITH_INV = 9,
    }
    mod rdma_port_space: core::ffi::c_uint { RDMA_PS_IB = 0x013F, }

    struct ibv_event_type { IBV_EVENT_COMM_EST = 4, }
    struct ibv_send_flags { IBV_SEND_INLINE = 8, }
    struct ibv_qp_attr_mask {
        IBV_QP_STATE = 1, IBV_QP_ACCESS_FLAGS = 8, IBV_QP_TIMEOUT = 0x200, IBV_QP_RETRY_CNT = 0x400, IBV_QP_RNR_RETRY = 0x800,
        IBV_QP_MAX_QP_RD_ATOMIC = 0x2000, IBV_QP_MIN_RNR_TIMER = 0x8000,
    }
    struct ibv_srq_attr_mask { IBV_SRQ_LIMIT = 2, }
    struct ibv_qp_init_attr_mask { IBV_QP_INIT_ATTR_PD = 1, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64, }
    struct ibv_qp_create_send_ops_flags {
        IBV_QP_EX_WITH_RDMA_WRITE = 1, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 2, IBV_QP_EX_WITH_SEND = 4,
        IBV_QP_EX_WITH_SEND_WITH_IMM = 8, IBV_QP_EX_WITH_RDMA_READ = 16, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 32,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 64, IBV_QP_EX_WITH_LOCAL_INV = 128, IBV_QP_EX_WITH_BIND_MW = 256,
        IBV_QP_EX_WITH_SEND_WITH_INV = 512,
    }
    struct rdma_cm_join_mc_attr_mask { RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2, }
    struct rdma_cm_mc_join_flags { RDMA_MC_JOIN_FLAG_FULLMEMBER = 0, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1, }
}

/// A function of no type that this crate calls.
type Unused = Option<unsafe extern "C" fn()>;

/// The structure that the function `ibv_query_port` fills: the first fields of `ibv_port_attr`.
#[repr(C)]
pub struct _compat_ibv_port_attr {
    _private: [u8; 0],
}

structures! {
    union ibv_gid(whole) { raw: [u8; 16], global: ibv_gid_global_t, }
    struct ibv_gid_global_t(whole "__typeof__(((union ibv_gid *)0)->global)") { subnet_prefix: u64, interface_id: u64, }
    struct ibv_global_route(whole) { dgid: ibv_gid, flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, }
    struct ibv_ah_attr(whole) {
        grh: ibv_global_route, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    struct ibv_grh(whole) { version_tclass_flow: u32, paylen: u16, next_hdr: u8, hop_limit: u8, sgid: ibv_gid, dgid: ibv_gid, }
    struct ibv_ah(start) { context: *mut ibv_context, pd: *mut ibv_pd, handle: u32, }

    struct ibv_device(start) {
        _ops: [Unused; 2], node_type: c_int, transport_type: ibv_transport_type::Type, name: [c_char; 64], dev_name: [c_char; 64],
    }
    struct ibv_device_attr(whole) {
        fw_ver: [c_char; 64], node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64, vendor_id: u32,
        vendor_part_id: u32, hw_ver: u32, max_qp: c_int, max_qp_wr: c_int, device_cap_flags: c_uint, max_sge: c_int,
        max_sge_rd: c_int, max_cq: c_int, max_cqe: c_int, max_mr: c_int, max_pd: c_int, max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int, max_res_rd_atom: c_int, max_qp_init_rd_atom: c_int, max_ee_init_rd_atom: c_int,
        atomic_cap: c_uint, max_ee: c_int, max_rdd: c_int, max_mw: c_int, max_raw_ipv6_qp: c_int, max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int, max_mcast_qp_attach: c_int, max_total_mcast_qp_attach: c_int, max_ah: c_int, max_fmr: c_int,
        max_map_per_fmr: c_int, max_srq: c_int, max_srq_wr: c_int, max_srq_sge: c_int, max_pkeys: u16, local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }
    struct ibv_query_device_ex_input(whole) { comp_mask: u32, }
    struct ibv_device_attr_ex(start) { orig_attr: ibv_device_attr, comp_mask: u32, odp_caps: ibv_odp_caps, }
    struct ibv_odp_caps(whole) { general_caps: u64, per_transport_caps: per_transport_caps_t, }
    struct per_transport_caps_t(whole "__typeof__(((struct ibv_odp_caps *)0)->per_transport_caps)") {
        rc_odp_caps: u32, uc_odp_caps: u32, ud_odp_caps: u32,
    }
    struct ibv_port_attr(start) {
        state: c_uint, max_mtu: c_uint, active_mtu: c_uint, gid_tbl_len: c_int, port_cap_flags: u32, max_msg_sz: u32,
        bad_pkey_cntr: u32, qkey_viol_cntr: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, lmc: u8, max_vl_num: u8, sm_sl: u8,
        subnet_timeout: u8, init_type_reply: u8, active_width: u8, active_speed: u8, phys_state: u8, link_layer: u8, flags: u8,
    }
    struct ibv_gid_entry(whole) { gid: ibv_gid, gid_index: u32, port_num: u32, gid_type: u32, ndev_ifindex: u32, }
    struct ibv_context(whole) {
        device: *mut ibv_device, ops: ibv_context_ops, cmd_fd: c_int, async_fd: c_int, num_comp_vectors: c_int,
        mutex: pthread_mutex_t, abi_compat: *mut c_void,
    }
    struct ibv_context_ops(whole) {
        _compat_query_device: Unused, _compat_query_port: Unused, _compat_alloc_pd: Unused, _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused, _compat_rereg_mr: Unused, _compat_dereg_mr: Unused,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type::Type) -> *mut ibv_mw>,
        bind_mw: Unused,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: Unused,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: Unused, _compat_resize_cq: Unused, _compat_destroy_cq: Unused, _compat_create_srq: Unused,
        _compat_modify_srq: Unused, _compat_query_srq: Unused, _compat_destroy_srq: Unused,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: Unused, _compat_query_qp: Unused, _compat_modify_qp: Unused, _compat_destroy_qp: Unused,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: Unused, _compat_destroy_ah: Unused, _compat_attach_mcast: Unused, _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }
    struct verbs_context(end) {
        modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        post_srq_ops: Unused, destroy_rwq_ind_table: Unused, create_rwq_ind_table: Unused, destroy_wq: Unused, modify_wq: Unused,
        create_wq: Unused, query_rt_values: Unused, create_cq_ex: Unused, private "priv": *mut c_void,
        query_device_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize) -> c_int,
        >,
        ibv_destroy_flow: Unused, abi_placeholder2 "ABI_placeholder2": Unused, ibv_create_flow: Unused,
        abi_placeholder1 "ABI_placeholder1": Unused, open_qp: Unused,
        create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        get_srq_num: Unused, create_srq_ex: Unused, open_xrcd: Unused, close_xrcd: Unused,
        abi_placeholder3 "_ABI_placeholder3": u64, sz: usize, context: ibv_context,
    }
    struct ibv_async_event(whole) { element: ibv_async_event_element_t, event_type: c_uint, }
    union ibv_async_event_element_t(whole "__typeof__(((struct ibv_async_event *)0)->element)") {
        cq: *mut ibv_cq, qp: *mut ibv_qp, srq: *mut ibv_srq, port_num: c_int,
    }

    struct ibv_pd(whole) { context: *mut ibv_context, handle: u32, }
    struct ibv_mr(start) {
        context: *mut ibv_context, pd: *mut ibv_pd, addr: *mut c_void, length: usize, handle: u32, lkey: u32, rkey: u32,
    }
    struct ibv_mw(start) { context: *mut ibv_context, pd: *mut ibv_pd, rkey: u32, handle: u32, }
    struct ibv_mw_bind_info(whole) { mr: *mut ibv_mr, addr: u64, length: u64, mw_access_flags: c_uint, }

    struct ibv_comp_channel(start) { context: *mut ibv_context, fd: c_int, }
    struct ibv_cq(start) {
        context: *mut ibv_context, channel: *mut ibv_comp_channel, cq_context: *mut c_void, handle: u32, cqe: c_int,
    }
    struct ibv_moderate_cq(whole) { cq_count: u16, cq_period: u16, }
    struct ibv_modify_cq_attr(whole) { attr_mask: u32, moderate: ibv_moderate_cq, }
    struct ibv_wc(whole) {
        wr_id: u64, status: c_uint, opcode: c_uint, vendor_err: u32, byte_len: u32,
        imm_data_invalidated_rkey_union "imm_data": imm_data_invalidated_rkey_union_t, qp_num: u32, src_qp: u32, wc_flags: c_uint,
        pkey_index: u16, slid: u16, sl: u8, dlid_path_bits: u8,
    }
    union imm_data_invalidated_rkey_union_t(whole "__typeof__(((struct ibv_wc *)0)->imm_data)") {
        imm_data "": u32, invalidated_rkey "": u32,
    }

    struct ibv_srq(start) { context: *mut ibv_context, srq_context: *mut c_void, pd: *mut ibv_pd, handle: u32, }
    struct ibv_srq_attr(whole) { max_wr: u32, max_sge: u32, srq_limit: u32, }
    struct ibv_srq_init_attr(whole) { srq_context: *mut c_void, attr: ibv_srq_attr, }

    struct ibv_qp(whole) {
        context: *mut ibv_context, qp_context: *mut c_void, pd: *mut ibv_pd, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq, handle: u32, qp_num: u32, state: ibv_qp_state::Type, qp_type: ibv_qp_type::Type,
        mutex: pthread_mutex_t, cond: pthread_cond_t, events_completed: u32,
    }
    struct ibv_qp_ex(start) {
        qp_base: ibv_qp, comp_mask: u64, wr_id: u64, wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
        wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_tso: Unused,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Unused,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
        wr_set_inline_data_list: Unused,
        wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
        wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    }
    struct ibv_qp_cap(whole) { max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32, }
    struct ibv_qp_init_attr(whole) {
        qp_context: *mut c_void, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq, cap: ibv_qp_cap,
        qp_type: ibv_qp_type::Type, sq_sig_all: c_int,
    }
    struct ibv_rx_hash_conf(whole) {
        rx_hash_function: u8, rx_hash_key_len: u8, rx_hash_key: *mut u8, rx_hash_fields_mask: u64,
    }
    struct ibv_qp_init_attr_ex(whole) {
        qp_context: *mut c_void, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq, cap: ibv_qp_cap,
        qp_type: ibv_qp_type::Type, sq_sig_all: c_int, comp_mask: u32, pd: *mut ibv_pd, xrcd: *mut c_void, create_flags: u32,
        max_tso_header: u16, rwq_ind_tbl: *mut c_void, rx_hash_conf: ibv_rx_hash_conf, source_qpn: u32, send_ops_flags: u64,
    }
    struct ibv_qp_attr(whole) {
        qp_state: ibv_qp_state::Type, cur_qp_state: ibv_qp_state::Type, path_mtu: c_uint, path_mig_state: c_uint, qkey: u32,
        rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: c_uint, cap: ibv_qp_cap, ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr, pkey_index: u16, alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8,
        max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, rate_limit: u32,
    }
    struct ibv_ece(whole) { vendor_id: u32, options: u32, comp_mask: u32, }

    struct ibv_sge(whole) { addr: u64, length: u32, lkey: u32, }
    struct ibv_recv_wr(whole) { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int, }
    struct ibv_send_wr(whole) {
        wr_id: u64, next: *mut ibv_send_wr, sg_list: *mut ibv_sge, num_sge: c_int, opcode: ibv_wr_opcode::Type,
        send_flags: c_uint, imm_data_invalidated_rkey_union "imm_data": imm_data_invalidated_rkey_union_t, wr: wr_t,
        qp_type: qp_type_t, bind_mw_tso_union "bind_mw": bind_mw_tso_union_t,
    }
    union wr_t(whole "__typeof__(((struct ibv_send_wr *)0)->wr)") { rdma: rdma_t, atomic: atomic_t, ud: ud_t, }
    struct rdma_t(whole "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)") { remote_addr: u64, rkey: u32, }
    struct atomic_t(whole "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)") {
        remote_addr: u64, compare_add: u64, swap: u64, rkey: u32,
    }
    struct ud_t(whole "__typeof__(((struct ibv_send_wr *)0)->wr.ud)") { ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32, }
    union qp_type_t(whole "__typeof__(((struct ibv_send_wr *)0)->qp_type)") { xrc: xrc_t, }
    struct xrc_t(whole "__typeof__(((struct ibv_send_wr *)0)->qp_type.xrc)") { remote_srqn: u32, }
    // The member `tso` of the union is smaller.
    union bind_mw_tso_union_t(whole "__typeof__(((struct ibv_send_wr *)0)->bind_mw)") { bind_mw "": bind_mw_t, }
    struct bind_mw_t(whole "__typeof__(((struct ibv_send_wr *)0)->bind_mw)") {
        mw: *mut ibv_mw, rkey: u32, bind_info: ibv_mw_bind_info,
    }

    struct rdma_event_channel(whole) { fd: c_int, }
    struct rdma_cm_id(start) {
        verbs: *mut ibv_context, channel: *mut rdma_event_channel, context: *mut c_void, qp: *mut ibv_qp, route: rdma_route,
        ps: rdma_port_space::Type, port_num: u8, event: *mut rdma_cm_event, send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq, recv_cq_channel: *mut ibv_comp_channel, recv_cq: *mut ibv_cq, srq: *mut ibv_srq, pd: *mut ibv_pd,
        qp_type: ibv_qp_type::Type,
    }
    struct rdma_route(whole) { addr: rdma_addr, path_rec: *mut c_void, num_paths: c_int, }
    struct rdma_addr(whole) {
        src_addr_union "src_storage": src_addr_union_t, dst_addr_union "dst_storage": dst_addr_union_t, addr: addr_union_t,
    }
    // As wide as C's unions, which have no names.
    union src_addr_union_t(whole "struct sockaddr_storage") {
        src_addr "": sockaddr, src_sin "": sockaddr_in, src_sin6 "": sockaddr_in6, src_storage "": sockaddr_storage,
    }
    union dst_addr_union_t(whole "struct sockaddr_storage") {
        dst_addr "": sockaddr, dst_sin "": sockaddr_in, dst_sin6 "": sockaddr_in6, dst_storage "": sockaddr_storage,
    }
    union addr_union_t(whole "__typeof__(((struct rdma_addr *)0)->addr)") { ibaddr: rdma_ib_addr, }
    struct rdma_ib_addr(whole) { sgid: ibv_gid, dgid: ibv_gid, pkey: u16, }
    struct rdma_conn_param(whole) {
        private_data: *const c_void, private_data_len: u8, responder_resources: u8, initiator_depth: u8, flow_control: u8,
        retry_count: u8, rnr_retry_count: u8, srq: u8, qp_num: u32,
    }
    struct rdma_ud_param(whole) {
        private_data: *const c_void, private_data_len: u8, ah_attr: ibv_ah_attr, qp_num: u32, qkey: u32,
    }
    struct rdma_cm_event(start) {
        id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id, event: c_uint, status: c_int, param: param_t,
    }
    union param_t(whole "__typeof__(((struct rdma_cm_event *)0)->param)") { conn: rdma_conn_param, ud: rdma_ud_param, }
    struct rdma_cm_join_mc_attr_ex(whole) { comp_mask: u32, join_flags: u32, addr: *mut sockaddr, }
    struct rdma_addrinfo(whole) {
        ai_flags: c_int, ai_family: c_int, ai_qp_type: c_int, ai_port_space: c_int, ai_src_len: socklen_t, ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr, ai_dst_addr: *mut sockaddr, ai_src_canonname: *mut c_char, ai_dst_canonname: *mut c_char,
        ai_route_len: usize, ai_route: *mut c_void, ai_connect_len: usize, ai_connect: *mut c_void, ai_next: *mut rdma_addrinfo,
    }
}

/// A structure or union, as the comparison with the headers needs it.
#[cfg(test)]
pub struct Structure {
    /// `struct NAME` or `union NAME`.
    pub name: &'static str,
    /// The type in C, if it is another one.
    pub of_c: &'static [&'static str],
    /// `whole`, `start` or `end`.
    pub extent: &'static str,
    pub size: usize,
    pub fields: &'static [Field],
}

/// A field of it.
#[cfg(test)]
pub struct Field {
    pub name: &'static str,
    /// The name in C, if it is another one; empty if C has no name for it.
    pub of_c: &'static [&'static str],
    pub offset: usize,
    pub size: usize,
    pub ty: &'static str,
}
