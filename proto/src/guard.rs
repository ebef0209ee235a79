//! What a request must satisfy besides the state: the checks that depend on its arguments and on the id.

use core::net::SocketAddr;

use crate::error::Why;
use crate::id::Id;
use crate::request::{CmOption, Request, Service, Verb};

/// The private data that each message has room for (rdma_connect(3), rdma_accept(3); `cma_user_data_offset` of the kernel:
/// a request over IP gives 36 bytes, of 92 or for datagrams of 216, to the address header).
#[must_use]
#[inline(always)]
pub const fn private_data_max(verb: Verb, service: Service) -> usize {
    match (verb, service) {
        (Verb::Connect, Service::Connected) => 56,
        (Verb::Accept, Service::Connected) => 196,
        (Verb::Reject, Service::Connected) => 148,
        (Verb::Connect, Service::Datagram) => 180,
        (Verb::Accept | Verb::Reject, Service::Datagram) => 136,
        (
            Verb::Bind
            | Verb::ResolveAddr
            | Verb::ResolveRoute
            | Verb::Listen
            | Verb::AttachQp
            | Verb::DetachQp
            | Verb::Establish
            | Verb::Disconnect
            | Verb::Teardown
            | Verb::Notify
            | Verb::GetRequest
            | Verb::Join
            | Verb::Leave
            | Verb::SetTos
            | Verb::ReuseAddr
            | Verb::NoReuseAddr
            | Verb::SetAfOnly
            | Verb::SetAckTimeout
            | Verb::SetEce
            | Verb::Migrate
            | Verb::Release
            | Verb::Destroy
            | Verb::DestroyNow,
            Service::Connected | Service::Datagram,
        ) => 0,
    }
}

/// Decides what the table leaves open.
#[inline(always)]
pub(crate) fn check(id: &Id, verb: Verb, request: &Request<'_>) -> Result<(), Why> {
    let service = id.port_space.service();
    let len = request.private_data().len();
    if len > private_data_max(verb, service) {
        return Err(Why::PrivateDataTooLong { len, max: private_data_max(verb, service) });
    }
    match *request {
        Request::ResolveAddr { src: Some(src), dst } if src.is_ipv4() != dst.is_ipv4() => Err(Why::BadAddress),
        Request::AttachQp if id.has_qp => Err(Why::HasQp),
        Request::AttachQp if id.number_sent => Err(Why::NumberSent),
        Request::AttachQp if !id.has_device => Err(Why::NoDevice),
        Request::DetachQp if !id.has_qp => Err(Why::NoQp),
        Request::Establish if id.has_qp => Err(Why::HasQp),
        // 0 is no QP number of a connection: it would make every second connection of a host stale.
        // A lookup carries none.
        Request::Connect { param, .. } if !id.has_qp && param.qp_num == 0 && service == Service::Connected => {
            Err(Why::NoQp)
        }
        Request::Accept { param, .. } if !id.has_qp && param.qp_num == 0 => Err(Why::NoQp),
        Request::GetRequest if !id.sync => Err(Why::NotSync),
        Request::Join { .. } if service == Service::Connected => Err(Why::NotDatagram),
        Request::Join { .. } if !id.has_device => Err(Why::NoDevice),
        Request::SetOption { option: CmOption::AckTimeout(_) } if service == Service::Datagram => {
            Err(Why::NotForDatagrams)
        }
        Request::SetEce { .. } if service == Service::Datagram => Err(Why::NotForDatagrams),
        // The library takes the options from the QP where there is one.
        Request::SetEce { .. } if id.has_qp => Err(Why::HasQp),
        Request::SetEce { ece } if ece.vendor_id == 0 => Err(Why::NoVendor),
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
        | Request::Teardown
        | Request::Notify
        | Request::GetRequest
        | Request::Join { .. }
        | Request::Leave { .. }
        | Request::SetOption { .. }
        | Request::SetEce { .. }
        | Request::Migrate { .. }
        | Request::Destroy
        | Request::DestroyNow => Ok(()),
    }
}

/// Whether a bind to this address gives the id a device at once: wildcard and loopback do not (`cma_any_addr`).
pub(crate) fn names_a_device(addr: SocketAddr) -> bool {
    !addr.ip().is_unspecified() && !addr.ip().is_loopback()
}
