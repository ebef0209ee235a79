//! The conditions of a request besides the state: checks of its arguments and of the id.

use core::net::{IpAddr, SocketAddr};

use crate::event::ConnParam;
use crate::id::Id;
use crate::refuse_reason::RefuseReason;
use crate::request::{CmOption, Request, Service};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::transport::Transport;

impl RequestKind {
    /// Returns the maximum private data of its message (rdma_connect(3), rdma_accept(3); `cma_user_data_offset` of the
    /// kernel: the address header takes 36 bytes of a request over IP, which has 92 bytes, or 216 for datagrams). 0 for
    /// a request without private data.
    #[must_use]
    pub const fn private_data_max(self, service: Service) -> usize {
        let (connected, datagram) = if matches!(self, RequestKind::Connect) {
            (56, 180)
        } else if matches!(self, RequestKind::Accept) {
            (196, 136)
        } else if matches!(self, RequestKind::Reject) {
            (148, 136)
        } else {
            (0, 0)
        };
        match service {
            Service::Connected => connected,
            Service::Datagram => datagram,
        }
    }
}

/// Checks the conditions of a request that the table does not contain.
#[inline(always)]
pub(crate) fn check(id: &Id, request_kind: RequestKind, request: &Request<'_>) -> Result<(), RefuseReason> {
    let service = id.port_space.service();
    let (len, max) = (request.private_data().len(), request_kind.private_data_max(service));
    if len > max {
        return Err(RefuseReason::PrivateDataTooLong { len, max });
    }
    check_values(request)?;
    match *request {
        Request::Bind { addr }
        | Request::ResolveAddr { dst: addr, .. }
        | Request::ResolveAddr { src: Some(addr), .. }
            if is_mapped(addr) =>
        {
            Err(RefuseReason::MappedAddress)
        }
        Request::ResolveAddr { src: Some(src), dst } if src.is_ipv4() != dst.is_ipv4() => Err(RefuseReason::BadAddress),
        // The kernel would ignore it (`resolve_prepare_src`).
        Request::ResolveAddr { src: Some(_), .. } if id.state == State::Bound => Err(RefuseReason::IsBound),
        Request::AttachQp if id.has_qp => Err(RefuseReason::HasQp),
        Request::AttachQp if id.number_sent => Err(RefuseReason::NumberSent),
        Request::AttachQp if !id.on_device.is_some() => Err(RefuseReason::NoDevice),
        Request::DetachQp if !id.has_qp => Err(RefuseReason::NoQp),
        Request::Establish if id.has_qp => Err(RefuseReason::HasQp),
        // 0 is not a valid QP number of a connection: the peer's kernel would reject the second connection with it as
        // stale. A lookup sends no QP number.
        Request::Connect { param, .. } if !id.has_qp && param.qp_num == 0 && service == Service::Connected => {
            Err(RefuseReason::NoQp)
        }
        Request::Accept { param, .. } if !id.has_qp && param.qp_num == 0 => Err(RefuseReason::NoQp),
        Request::GetRequest if !id.is_sync() => Err(RefuseReason::NotSync),
        Request::Join { .. } if service == Service::Connected => Err(RefuseReason::NotDatagram),
        Request::Join { addr, .. } if !names_a_group(addr) => Err(RefuseReason::NoGroup(addr)),
        // An idle id is bound to the wildcard by its listen, unless a failed lookup has bound it.
        Request::Listen { .. } if matches!(id.state, State::Idle | State::Bound) && id.on_device.is_on_loopback() => {
            Err(RefuseReason::OnLoopback)
        }
        Request::Join { .. } | Request::AttachQp | Request::Listen { .. } | Request::Connect { .. }
            if service == Service::Datagram && !id.transport().has_datagrams() =>
        {
            Err(RefuseReason::NoDatagrams)
        }
        Request::Join { .. } if !id.on_device.is_some() => Err(RefuseReason::NoDevice),
        Request::SetOption { option: CmOption::AckTimeout(_) } if service == Service::Datagram => {
            Err(RefuseReason::NotForDatagrams)
        }
        // On InfiniBand and RoCE the route has the type of service (`cma_resolve_iboe_route`); on iWARP the connect takes
        // it (`cma_connect_iw`).
        Request::SetOption { option: CmOption::Tos(_) }
            if matches!(id.state, State::RouteResolving | State::RouteResolved)
                && id.transport() == Transport::InfiniBand =>
        {
            Err(RefuseReason::AlreadySent)
        }
        Request::SetEce { .. } if service == Service::Datagram => Err(RefuseReason::NotForDatagrams),
        // With a QP, librdmacm uses the QP's options.
        Request::SetEce { .. } if id.has_qp => Err(RefuseReason::HasQp),
        Request::SetEce { ece } if ece.vendor_id == 0 => Err(RefuseReason::NoVendor),
        Request::Migrate { to: None } if id.is_sync() => Err(RefuseReason::AlreadySync),
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

/// Whether a join of this address can have a group: that of a multicast address, or for the wildcard one that the subnet
/// manager selects (`cma_set_mgid`). The kernel does not check this, and makes a group of any other address.
fn names_a_group(addr: SocketAddr) -> bool {
    let ip = addr.ip().to_canonical();
    ip.is_multicast() || ip.is_unspecified()
}

/// Checks that the values of a request fit into the fields of the messages and of the QP that carry them. The kernel
/// cuts off or lowers some, and fails at a later call because of others (`cm_format_req`, `rdma_connect`,
/// `ibv_modify_qp`).
fn check_values(request: &Request<'_>) -> Result<(), RefuseReason> {
    if let Request::Connect { param, .. } | Request::Accept { param, .. } = *request {
        let ConnParam { retry_count, rnr_retry_count, qp_num, .. } = param;
        fits("retry_count", retry_count.into(), 3)?;
        fits("rnr_retry_count", rnr_retry_count.into(), 3)?;
        fits("qp_num", qp_num, 24)
    } else if let Request::SetOption { option: CmOption::AckTimeout(power) } = *request {
        fits("the ACK timeout", power.into(), 5)
    } else if let Request::SetEce { ece } = *request {
        fits("vendor_id", ece.vendor_id, 24)
    } else {
        Ok(())
    }
}

/// Checks a value against the number of bits of its field.
const fn fits(field: &'static str, value: u32, bits: u32) -> Result<(), RefuseReason> {
    let max = (1 << bits) - 1;
    if value > max { Err(RefuseReason::TooLarge { field, value, max }) } else { Ok(()) }
}

/// Whether this is an IPv4 address in the form of IPv6.
fn is_mapped(addr: SocketAddr) -> bool {
    matches!(addr, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some())
}

/// Whether a bind to this address gives the id a device at once. Wildcard and loopback addresses do not
/// (`cma_any_addr`).
pub(crate) fn names_a_device(addr: SocketAddr) -> bool {
    !addr.ip().is_unspecified() && !is_loopback(addr)
}

/// Whether this is an address of the host itself that the kernel takes for the wildcard (`cma_any_addr`): of the
/// loopback (127.0.0.0/8, ::1), or of "this network" (0.0.0.0/8) and not the wildcard itself.
pub(crate) fn is_loopback(addr: SocketAddr) -> bool {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || (ip.octets()[0] == 0 && !ip.is_unspecified()),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
