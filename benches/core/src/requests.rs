//! Requests that several measurements make.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cmid_proto::{ConnParam, Request};

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7471);

/// The private data field of a REQ over IP.
pub(crate) static REQUEST: [u8; 56] = [0xa5; 56];

pub(crate) fn resolve() -> Request<'static> {
    Request::ResolveAddr { src: None, dst: black_box(PEER) }
}

pub(crate) fn connect() -> Request<'static> {
    Request::Connect { param: black_box(PARAM), private_data: &REQUEST }
}

/// Without a QP on the id.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 17,
};
