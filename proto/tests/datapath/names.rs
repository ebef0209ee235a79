//! Every number of libibverbs has its name.

use cmid_proto::datapath::{
    AsyncEventKind, Completion, CreateCall, GidKind, LinkLayer, OfDevice, OfPd, PortAttrs, PortGid, PortState, QpAttr,
    QpState, WcFlags, WcOpcode, WcStatus,
};

fn names<T: ToString>(numbers: std::ops::Range<u32>, of: fn(u32) -> T) -> Vec<String> {
    numbers.map(|number| of(number).to_string()).collect()
}

#[test]
fn states_of_a_qp() {
    let expected = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "QP state 7"];
    assert_eq!(names(0..8, QpState), expected);
}

#[test]
fn opcodes() {
    let expected = ["SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV", "opcode 7"];
    assert_eq!(names(0..8, WcOpcode), expected);
    assert_eq!(names(128..131, WcOpcode), ["RECV", "RECV_RDMA_WITH_IMM", "opcode 130"]);
}

#[test]
fn statuses() {
    let expected = [
        "success",
        "local length error",
        "local QP operation error",
        "local EE context operation error",
        "local protection error",
        "work request flushed",
        "memory window bind error",
        "bad response",
        "local access error",
        "remote invalid request error",
        "remote access error",
        "remote operation error",
        "transport retry counter exceeded",
        "RNR retry counter exceeded",
        "status 14",
        "status 15",
        "remote aborted",
        "status 17",
        "status 18",
        "fatal error",
        "response timeout",
        "general error",
        "status 22",
    ];
    assert_eq!(names(0..23, WcStatus), expected);
}

#[test]
fn asynchronous_events() {
    let expected = [
        "CQ_ERR",
        "QP_FATAL",
        "QP_REQ_ERR",
        "QP_ACCESS_ERR",
        "COMM_EST",
        "SQ_DRAINED",
        "PATH_MIG",
        "PATH_MIG_ERR",
        "DEVICE_FATAL",
        "PORT_ACTIVE",
        "PORT_ERR",
        "LID_CHANGE",
        "PKEY_CHANGE",
        "SM_CHANGE",
        "SRQ_ERR",
        "SRQ_LIMIT_REACHED",
        "QP_LAST_WQE_REACHED",
        "CLIENT_REREGISTER",
        "GID_CHANGE",
        "WQ_FATAL",
        "event type 20",
    ];
    assert_eq!(names(0..21, AsyncEventKind), expected);
}

#[test]
fn a_completion_says_whether_it_succeeded_and_has_a_header() {
    let done = Completion { flags: WcFlags::GRH, ..Completion::default() };
    assert!(done.is_success() && done.has_grh());
    let failed = Completion { status: WcStatus::WR_FLUSH_ERR, flags: WcFlags::empty(), ..done };
    assert!(!failed.is_success() && !failed.has_grh());
}

#[test]
fn states_of_a_port() {
    assert_eq!(names(0..6, PortState), ["port state 0", "DOWN", "INIT", "ARMED", "ACTIVE", "port state 5"]);
    let known = PortAttrs::in_state(PortState::DOWN);
    assert_eq!((known.state, known.active_mtu, known.link_layer), (PortState::DOWN, 0, LinkLayer::Unspecified));
}

#[test]
fn the_gid_of_an_ipv4_address_is_that_address() {
    let gid = |gid| PortGid { index: 0, gid, kind: GidKind::RoceV2, net_device: None }.ip().to_string();
    assert_eq!(gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 1]), "10.99.0.1");
    assert_eq!(gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]), "fe80::7");
}

#[test]
fn objects_and_attributes() {
    let of_device = [OfDevice::Pd, OfDevice::SendCq, OfDevice::RecvCq, OfDevice::Srq, OfDevice::CompChannel];
    assert_eq!(
        of_device.map(|of| of.to_string()),
        ["the PD", "the CQ of sends", "the CQ of receives", "the SRQ", "the completion channel"]
    );
    assert_eq!([OfPd::Mr, OfPd::Ah, OfPd::Mw].map(|of| of.to_string()), ["the MR", "the address handle", "the window"]);
    let attrs = [QpAttr::MinRnrTimer, QpAttr::Timeout, QpAttr::RetryCount, QpAttr::RnrRetry];
    assert_eq!(attrs.map(|attr| attr.to_string()), ["min_rnr_timer", "timeout", "retry_count", "rnr_retry"]);
    let calls = [CreateCall::AllocMw, CreateCall::CreateAh, CreateCall::AsyncEvents, CreateCall::ResizeCq];
    assert_eq!(calls.map(|call| call.to_string()), ["alloc_mw", "create_ah", "async_events", "resize"]);
}
