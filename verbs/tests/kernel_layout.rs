//! Compares the structures of the kernel backend with `rdma/rdma_user_cm.h`, by the C compiler.
#![allow(dead_code, reason = "the structures are compared, not used")]

use std::mem::{offset_of, size_of};

#[path = "../src/kernel/abi.rs"]
mod abi;
mod compiler;

macro_rules! layout {
    ($prefix:literal: $($c:literal = $rust:ident { $($field:ident),* })+) => {
        vec![$(
            (format!(concat!("sizeof(struct ", $prefix, "{})"), $c), size_of::<abi::$rust>()),
            $( (format!(concat!("offsetof(struct ", $prefix, "{}, {})"), $c, stringify!($field).trim_start_matches("r#")),
                offset_of!(abi::$rust, $field)), )*
        )+]
    };
}

#[test]
fn structures_are_those_of_the_header() {
    let mut expected = layout! { "rdma_ucm_":
        "cmd_hdr" = Header { cmd, r#in, out }
        "create_id" = CreateId { uid, response, ps, qp_type, reserved }
        "destroy_id" = DestroyId { response, id, reserved }
        "bind" = Bind { id, addr_size, reserved, addr }
        "resolve_ip" = ResolveIp { src_addr, dst_addr, id, timeout_ms }
        "resolve_route" = ResolveRoute { id, timeout_ms }
        "query" = Query { response, id, option }
        "conn_param" = ConnParam {
            qp_num, qkey, private_data, private_data_len, srq, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, valid
        }
        "ece" = Ece { vendor_id, attr_mod }
        "connect" = Connect { conn_param, id, reserved, ece }
        "listen" = Listen { id, backlog }
        "accept" = Accept { uid, conn_param, id, reserved, ece }
        "reject" = Reject { id, private_data_len, reason, reserved, private_data }
        "disconnect" = Disconnect { id }
        "notify" = Notify { id, event }
        "join_mcast" = JoinMcast { response, uid, id, addr_size, join_flags, addr }
        "get_event" = GetEvent { response }
        "set_option" = SetOption { optval, id, level, optname, optlen }
        "migrate_id" = MigrateId { response, id, fd }
        "init_qp_attr" = InitQpAttr { response, id, qp_state }
    };
    expected.extend(layout! { "ib_uverbs_":
        "ah_attr" = AhAttr { dlid, sl, src_path_bits, static_rate, is_global, port_num, reserved }
        "qp_attr" = QpAttr {
            qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, ah_attr, alt_ah_attr, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
            max_inline_data, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            reserved
        }
    });
    expected.extend(answers());
    expected.extend(commands());

    let headers = ["stddef.h", "netinet/in.h", "rdma/rdma_user_cm.h"];
    compiler::assert_all("kernel_layout.c", &headers, expected.into_iter().map(|(c, ours)| format!("{c} == {ours}")));
}

fn answers() -> Vec<(String, usize)> {
    use abi::offset;
    [
        ("sizeof(struct rdma_ucm_event_resp)", offset::EVENT_LEN),
        ("offsetof(struct rdma_ucm_event_resp, reserved)", offset::EVENT_LEN_OLD),
        ("offsetof(struct rdma_ucm_event_resp, uid)", 0),
        ("offsetof(struct rdma_ucm_event_resp, id)", offset::EVENT_ID),
        ("offsetof(struct rdma_ucm_event_resp, event)", offset::EVENT_KIND),
        ("offsetof(struct rdma_ucm_event_resp, status)", offset::EVENT_STATUS),
        ("offsetof(struct rdma_ucm_event_resp, param)", offset::EVENT_PARAM),
        ("offsetof(struct rdma_ucm_event_resp, ece)", offset::EVENT_ECE),
        ("offsetof(struct rdma_ucm_conn_param, private_data)", 8),
        ("offsetof(struct rdma_ucm_conn_param, private_data_len)", offset::CONN_PRIVATE_LEN),
        ("offsetof(struct rdma_ucm_ud_param, qkey)", 4),
        ("offsetof(struct rdma_ucm_ud_param, ah_attr)", offset::UD_AH),
        ("offsetof(struct rdma_ucm_ud_param, private_data)", offset::UD_PRIVATE),
        ("offsetof(struct rdma_ucm_ud_param, private_data_len)", offset::UD_PRIVATE_LEN),
        ("offsetof(struct ib_uverbs_ah_attr, grh.dgid)", offset_of!(abi::AhAttr, dgid)),
        ("offsetof(struct ib_uverbs_ah_attr, grh.hop_limit)", offset_of!(abi::AhAttr, hop_limit)),
        ("offsetof(struct ib_uverbs_ah_attr, grh.traffic_class)", offset_of!(abi::AhAttr, traffic_class)),
        ("offsetof(struct ib_uverbs_ah_attr, grh.flow_label)", 16),
        ("offsetof(struct ib_uverbs_ah_attr, grh.sgid_index)", 20),
        ("offsetof(struct ib_uverbs_ah_attr, dlid)", 24),
        ("offsetof(struct ib_uverbs_ah_attr, sl)", 26),
        ("offsetof(struct ib_uverbs_ah_attr, is_global)", 29),
        ("offsetof(struct ib_uverbs_ah_attr, port_num)", 30),
        ("sizeof(struct rdma_ucm_query_addr_resp)", offset::ADDR_LEN),
        ("offsetof(struct rdma_ucm_query_addr_resp, node_guid)", 0),
        ("offsetof(struct rdma_ucm_query_addr_resp, port_num)", offset::ADDR_PORT),
        ("offsetof(struct rdma_ucm_query_addr_resp, ibdev_index)", offset::ADDR_INDEX),
        ("offsetof(struct rdma_ucm_query_addr_resp, src_addr)", offset::ADDR_SRC),
        ("offsetof(struct rdma_ucm_query_addr_resp, dst_addr)", offset::ADDR_DST),
    ]
    .map(|(c, ours)| (c.to_string(), ours))
    .into()
}

fn commands() -> Vec<(String, usize)> {
    use abi::Command as C;
    let number = |name: &str, command: C| (format!("RDMA_USER_CM_CMD_{name}"), command as usize);
    vec![
        ("RDMA_USER_CM_ABI_VERSION".into(), abi::ABI_VERSION as usize),
        ("RDMA_USER_CM_QUERY_ADDR".into(), abi::QUERY_ADDR as usize),
        ("RDMA_MAX_PRIVATE_DATA".into(), abi::PRIVATE_DATA),
        number("CREATE_ID", C::CreateId),
        number("DESTROY_ID", C::DestroyId),
        number("RESOLVE_ROUTE", C::ResolveRoute),
        number("CONNECT", C::Connect),
        number("LISTEN", C::Listen),
        number("ACCEPT", C::Accept),
        number("REJECT", C::Reject),
        number("DISCONNECT", C::Disconnect),
        number("INIT_QP_ATTR", C::InitQpAttr),
        number("GET_EVENT", C::GetEvent),
        number("SET_OPTION", C::SetOption),
        number("NOTIFY", C::Notify),
        number("LEAVE_MCAST", C::LeaveMcast),
        number("MIGRATE_ID", C::MigrateId),
        number("QUERY", C::Query),
        number("BIND", C::Bind),
        number("RESOLVE_IP", C::ResolveIp),
        number("JOIN_MCAST", C::JoinMcast),
    ]
}
