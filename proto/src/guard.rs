//! What a request must satisfy besides the state: the checks that depend on its arguments and on the id.

use core::net::{IpAddr, SocketAddr};

use crate::error::Why;
use crate::id::Id;
use crate::request::{Request, Verb};

/// The private data that each message has room for (rdma_connect(3), rdma_accept(3); `cma_user_data_offset` of the kernel:
/// a request over IP gives 36 of its 92 bytes to the address header).
#[must_use]
pub const fn private_data_max(verb: Verb) -> usize {
    match verb {
        Verb::Connect => 56,
        Verb::Accept => 196,
        Verb::Reject => 148,
        Verb::Bind
        | Verb::ResolveAddr
        | Verb::ResolveRoute
        | Verb::Listen
        | Verb::AttachQp
        | Verb::DetachQp
        | Verb::Establish
        | Verb::Disconnect
        | Verb::Migrate
        | Verb::Release
        | Verb::Destroy => 0,
    }
}

/// Decides what the table leaves open.
pub(crate) fn check(id: &Id, request: &Request<'_>) -> Result<(), Why> {
    let (len, max) = (request.private_data().len(), private_data_max(request.verb()));
    if len > max {
        return Err(Why::PrivateDataTooLong { len, max });
    }
    match *request {
        Request::ResolveAddr { src: Some(src), dst } if src.is_ipv4() != dst.is_ipv4() => Err(Why::BadAddress),
        Request::AttachQp if id.has_qp => Err(Why::HasQp),
        Request::AttachQp if !id.has_device => Err(Why::NoDevice),
        Request::DetachQp if !id.has_qp => Err(Why::NoQp),
        Request::Establish if id.has_qp => Err(Why::HasQp),
        // 0 is no QP number of a connection: it would make every second connection of a host stale.
        Request::Connect { param, .. } | Request::Accept { param, .. } if !id.has_qp && param.qp_num == 0 => {
            Err(Why::NoQp)
        }
        Request::Migrate { to: None } if id.sync => Err(Why::AlreadySync),
        Request::Bind { .. }
        | Request::ResolveAddr { .. }
        | Request::ResolveRoute
        | Request::Listen { .. }
        | Request::AttachQp
        | Request::DetachQp
        | Request::Connect { .. }
        | Request::Accept { .. }
        | Request::Reject { .. }
        | Request::Establish
        | Request::Disconnect
        | Request::Migrate { .. }
        | Request::Destroy => Ok(()),
    }
}

/// Whether a bind to this address gives the id a device at once: wildcard and loopback do not (`cma_any_addr`).
pub(crate) fn names_a_device(addr: SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_loopback(),
    }
}
