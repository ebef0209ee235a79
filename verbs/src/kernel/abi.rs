//! The structures of `rdma/rdma_user_cm.h`, ABI version 4.
//!
//! `tests/kernel_layout.rs` includes this file and compares sizes, offsets and numbers with the installed header. No
//! structure has padding: a structure is written to the kernel as its bytes.

/// `RDMA_USER_CM_ABI_VERSION`.
pub(crate) const ABI_VERSION: u32 = 4;

/// `RDMA_USER_CM_CMD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Command {
    CreateId = 0,
    DestroyId = 1,
    ResolveIp = 3,
    ResolveRoute = 4,
    Connect = 6,
    Listen = 7,
    Accept = 8,
    Reject = 9,
    Disconnect = 10,
    InitQpAttr = 11,
    GetEvent = 12,
    SetOption = 14,
    Notify = 15,
    LeaveMcast = 17,
    MigrateId = 18,
    Query = 19,
    Bind = 20,
    JoinMcast = 22,
}

/// `RDMA_USER_CM_QUERY_ADDR`.
pub(crate) const QUERY_ADDR: u32 = 0;
/// `RDMA_MAX_PRIVATE_DATA`.
pub(crate) const PRIVATE_DATA: usize = 256;

/// `struct __kernel_sockaddr_storage`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Storage(pub(crate) [u8; 128]);

/// `struct sockaddr_in6`, in which an address of IPv4 has room too.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub(crate) struct In6(pub(crate) [u8; 28]);

/// Declares structures, with their names in C. A literal is the name of a field in C where Rust's is another one.
macro_rules! structures {
    ($(
        $(#[$attr:meta])*
        struct $name:ident($c:ident) { $( $field:ident $($of_c:literal)?: $ty:ty, )+ }
    )+) => {
        $(
            $(#[$attr])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name {
                $( pub(crate) $field: $ty, )+
            }

            // It has no padding.
            const _: () = assert!(size_of::<$name>() == 0 $( + size_of::<$ty>() )+);
        )+

        /// The sizes and offsets of all structures, in C and here.
        #[cfg(test)]
        #[allow(dead_code, reason = "for tests/kernel_layout.rs")]
        pub(crate) fn layout() -> Vec<(String, usize)> {
            let mut all = Vec::new();
            $(
                all.push((format!("sizeof(struct {})", stringify!($c)), size_of::<$name>()));
                $(
                    let field = [$($of_c,)? stringify!($field).trim_start_matches("r#")][0];
                    all.push((format!("offsetof(struct {}, {field})", stringify!($c)), core::mem::offset_of!($name, $field)));
                )+
            )+
            all
        }
    };
}

structures! {
    struct Header(rdma_ucm_cmd_hdr) { cmd: u32, r#in: u16, out: u16, }
    struct CreateId(rdma_ucm_create_id) { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5], }
    struct DestroyId(rdma_ucm_destroy_id) { response: u64, id: u32, reserved: u32, }
    struct LeaveMcast(rdma_ucm_destroy_id) { response: u64, id: u32, reserved: u32, }
    struct Bind(rdma_ucm_bind) { id: u32, addr_size: u16, reserved: u16, addr: Storage, }
    struct ResolveIp(rdma_ucm_resolve_ip) { src_addr: In6, dst_addr: In6, id: u32, timeout_ms: u32, }
    struct ResolveRoute(rdma_ucm_resolve_route) { id: u32, timeout_ms: u32, }
    struct Query(rdma_ucm_query) { response: u64, id: u32, option: u32, }
    struct ConnParam(rdma_ucm_conn_param) {
        qp_num: u32, qkey: u32, private_data: [u8; PRIVATE_DATA], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8, rnr_retry_count: u8,
        valid: u8,
    }
    struct Ece(rdma_ucm_ece) { vendor_id: u32, attr_mod: u32, }
    struct Connect(rdma_ucm_connect) { conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    struct Listen(rdma_ucm_listen) { id: u32, backlog: u32, }
    struct Accept(rdma_ucm_accept) { uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    struct Reject(rdma_ucm_reject) {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; PRIVATE_DATA],
    }
    struct Disconnect(rdma_ucm_disconnect) { id: u32, }
    struct Notify(rdma_ucm_notify) { id: u32, event: u32, }
    struct JoinMcast(rdma_ucm_join_mcast) {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: Storage,
    }
    struct GetEvent(rdma_ucm_get_event) { response: u64, }
    struct SetOption(rdma_ucm_set_option) { optval: u64, id: u32, level: u32, optname: u32, optlen: u32, }
    struct MigrateId(rdma_ucm_migrate_id) { response: u64, id: u32, fd: u32, }
    struct InitQpAttr(rdma_ucm_init_qp_attr) { response: u64, id: u32, qp_state: u32, }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct AhAttr(ib_uverbs_ah_attr) {
        dgid "grh.dgid": [u8; 16], flow_label "grh.flow_label": u32, sgid_index "grh.sgid_index": u8,
        hop_limit "grh.hop_limit": u8, traffic_class "grh.traffic_class": u8, grh_reserved "grh.reserved": u8,
        dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8, reserved: u8,
    }
    #[derive(Debug, Default, PartialEq, Eq)]
    struct QpAttr(ib_uverbs_qp_attr) {
        qp_attr_mask: u32, qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32, qkey: u32,
        rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32, ah_attr: AhAttr, alt_ah_attr: AhAttr,
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        pkey_index: u16, alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 5],
    }
}

impl ConnParam {
    /// No parameters: `valid` is 0.
    pub(crate) const NONE: ConnParam = ConnParam {
        qp_num: 0,
        qkey: 0,
        private_data: [0; PRIVATE_DATA],
        private_data_len: 0,
        srq: 0,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        valid: 0,
    };
}

/// Offsets in the kernel's answers, which are parsed as bytes.
pub(crate) mod offset {
    /// `struct rdma_ucm_event_resp`: its size with `ece`, and without it and the reserved field as old kernels have it.
    pub(crate) const EVENT_LEN: usize = 336;
    pub(crate) const EVENT_LEN_OLD: usize = 324;
    pub(crate) const EVENT_ID: usize = 8;
    pub(crate) const EVENT_KIND: usize = 12;
    pub(crate) const EVENT_STATUS: usize = 16;
    pub(crate) const EVENT_PARAM: usize = 20;
    pub(crate) const EVENT_ECE: usize = 328;
    /// `struct rdma_ucm_conn_param`, from `param`.
    pub(crate) const CONN_PRIVATE_LEN: usize = 264;
    /// `struct rdma_ucm_ud_param`, from `param`.
    pub(crate) const UD_AH: usize = 8;
    pub(crate) const UD_PRIVATE: usize = 40;
    pub(crate) const UD_PRIVATE_LEN: usize = 296;
    /// `struct rdma_ucm_query_addr_resp`: its size with `ibdev_index`, and where the addresses are.
    pub(crate) const ADDR_LEN: usize = 280;
    pub(crate) const ADDR_PORT: usize = 8;
    pub(crate) const ADDR_INDEX: usize = 272;
    pub(crate) const ADDR_SRC: usize = 16;
    pub(crate) const ADDR_DST: usize = 144;
}
