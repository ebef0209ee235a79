//! Compares the structures of the kernel backend with `rdma/rdma_user_cm.h`, by the C compiler.
#![allow(dead_code, reason = "the structures are compared, not used")]

#[path = "../src/kernel/abi.rs"]
mod abi;
mod compiler;

#[test]
fn structures_are_those_of_the_header() {
    let mut expected = abi::layout();
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
