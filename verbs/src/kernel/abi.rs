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

/// `struct rdma_ucm_cmd_hdr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) cmd: u32,
    pub(crate) r#in: u16,
    pub(crate) out: u16,
}

/// `struct __kernel_sockaddr_storage`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Storage(pub(crate) [u8; 128]);

/// `struct rdma_ucm_create_id`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CreateId {
    pub(crate) uid: u64,
    pub(crate) response: u64,
    pub(crate) ps: u16,
    pub(crate) qp_type: u8,
    pub(crate) reserved: [u8; 5],
}

/// `struct rdma_ucm_destroy_id`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DestroyId {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
}

/// The same structure, for `RDMA_USER_CM_CMD_LEAVE_MCAST`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct LeaveMcast {
    pub(crate) destroy: DestroyId,
}

/// `struct rdma_ucm_bind`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bind {
    pub(crate) id: u32,
    pub(crate) addr_size: u16,
    pub(crate) reserved: u16,
    pub(crate) addr: Storage,
}

/// `struct sockaddr_in6`, in which an address of IPv4 has room too.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub(crate) struct In6(pub(crate) [u8; 28]);

/// `struct rdma_ucm_resolve_ip`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ResolveIp {
    pub(crate) src_addr: In6,
    pub(crate) dst_addr: In6,
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
}

/// `struct rdma_ucm_resolve_route`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ResolveRoute {
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
}

/// `struct rdma_ucm_query`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Query {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) option: u32,
}

/// `struct rdma_ucm_conn_param`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ConnParam {
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    pub(crate) private_data: [u8; PRIVATE_DATA],
    pub(crate) private_data_len: u8,
    pub(crate) srq: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) valid: u8,
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

/// `struct rdma_ucm_ece`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Ece {
    pub(crate) vendor_id: u32,
    pub(crate) attr_mod: u32,
}

/// `struct rdma_ucm_connect`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Connect {
    pub(crate) conn_param: ConnParam,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) ece: Ece,
}

/// `struct rdma_ucm_listen`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Listen {
    pub(crate) id: u32,
    pub(crate) backlog: u32,
}

/// `struct rdma_ucm_accept`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Accept {
    pub(crate) uid: u64,
    pub(crate) conn_param: ConnParam,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) ece: Ece,
}

/// `struct rdma_ucm_reject`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Reject {
    pub(crate) id: u32,
    pub(crate) private_data_len: u8,
    pub(crate) reason: u8,
    pub(crate) reserved: [u8; 2],
    pub(crate) private_data: [u8; PRIVATE_DATA],
}

/// `struct rdma_ucm_disconnect`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Disconnect {
    pub(crate) id: u32,
}

/// `struct rdma_ucm_notify`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Notify {
    pub(crate) id: u32,
    pub(crate) event: u32,
}

/// `struct rdma_ucm_join_mcast`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct JoinMcast {
    pub(crate) response: u64,
    pub(crate) uid: u64,
    pub(crate) id: u32,
    pub(crate) addr_size: u16,
    pub(crate) join_flags: u16,
    pub(crate) addr: Storage,
}

/// `struct rdma_ucm_get_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct GetEvent {
    pub(crate) response: u64,
}

/// `struct rdma_ucm_set_option`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SetOption {
    pub(crate) optval: u64,
    pub(crate) id: u32,
    pub(crate) level: u32,
    pub(crate) optname: u32,
    pub(crate) optlen: u32,
}

/// `struct rdma_ucm_migrate_id`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MigrateId {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) fd: u32,
}

/// `struct rdma_ucm_init_qp_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct InitQpAttr {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) qp_state: u32,
}

/// `struct ib_uverbs_ah_attr` of `rdma/ib_user_verbs.h`, with its `struct ib_uverbs_global_route`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct AhAttr {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) grh_reserved: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
    pub(crate) reserved: u8,
}

/// `struct ib_uverbs_qp_attr` of `rdma/ib_user_verbs.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) qp_attr_mask: u32,
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) reserved: [u8; 5],
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
