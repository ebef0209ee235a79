//! The conditions of a request besides the state: checks of its arguments and of the id.

use core::net::SocketAddr;

use crate::event::ConnParam;
use crate::id::{Facts, Id};
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
        match (self, service) {
            (RequestKind::Connect, Service::Connected) => 56,
            (RequestKind::Connect, Service::Datagram) => 180,
            (RequestKind::Accept, Service::Connected) => 196,
            (RequestKind::Reject, Service::Connected) => 148,
            (RequestKind::Accept | RequestKind::Reject, Service::Datagram) => 136,
            (_, Service::Connected | Service::Datagram) => 0,
        }
    }
}

/// Checks the conditions of a request that the table does not contain.
#[inline(always)]
pub(crate) fn check(id: &Id, request: &Request<'_>) -> Result<(), RefuseReason> {
    let service = id.port_space.service();
    let is_datagram = service == Service::Datagram;
    // iWARP has neither lookups of a QP by service (SIDR) nor multicast groups.
    let lacks_datagrams = || is_datagram && id.transport() == Transport::Iwarp;
    match *request {
        Request::Bind { addr } => refuse(is_mapped(addr), RefuseReason::MappedAddress),
        Request::ResolveAddr { src: None, dst } => refuse(is_mapped(dst), RefuseReason::MappedAddress),
        Request::ResolveAddr { src: Some(src), dst } => {
            refuse(is_mapped(dst) || is_mapped(src), RefuseReason::MappedAddress)?;
            refuse(src.is_ipv4() != dst.is_ipv4(), RefuseReason::BadAddress)?;
            // The kernel ignores it if the id is bound (`resolve_prepare_src`).
            refuse(id.state == State::Bound || id.facts.contains(Facts::MAY_BE_BOUND), RefuseReason::IsBound)
        }
        // An idle id is bound to the wildcard by its listen, unless a failed lookup has bound it already.
        Request::Listen { .. } => {
            let is_bound = matches!(id.state, State::Idle | State::Bound);
            refuse(is_bound && id.facts.contains(Facts::ON_LOOPBACK), RefuseReason::OnLoopback)?;
            refuse(lacks_datagrams(), RefuseReason::NoDatagrams)
        }
        Request::AttachQp => {
            refuse(id.facts.contains(Facts::HAS_QP), RefuseReason::HasQp)?;
            refuse(id.facts.contains(Facts::NUMBER_SENT), RefuseReason::NumberSent)?;
            refuse(!id.facts.contains(Facts::HAS_DEVICE), RefuseReason::NoDevice)?;
            refuse(lacks_datagrams(), RefuseReason::NoDatagrams)
        }
        // A connect that has ended at its deadline: the kernel would wait for the answer (`iw_cm_disconnect`).
        Request::Disconnect => refuse(id.facts.contains(Facts::AWAITS_ANSWER), RefuseReason::NotConnected),
        Request::DetachQp => refuse(!id.facts.contains(Facts::HAS_QP), RefuseReason::NoQp),
        Request::Connect { param, private_data } => {
            check_private_data(RequestKind::Connect, service, private_data)?;
            check_param(param)?;
            // 0 is not a valid QP number of a connection: the peer's kernel would reject the second connection with it as
            // stale. A lookup sends no QP number.
            refuse(!is_datagram && !id.facts.contains(Facts::HAS_QP) && param.qp_num == 0, RefuseReason::NoQp)?;
            refuse(lacks_datagrams(), RefuseReason::NoDatagrams)
        }
        Request::Accept { param, private_data } => {
            check_private_data(RequestKind::Accept, service, private_data)?;
            check_param(param)?;
            refuse(!id.facts.contains(Facts::HAS_QP) && param.qp_num == 0, RefuseReason::NoQp)
        }
        Request::Reject { private_data, .. } => check_private_data(RequestKind::Reject, service, private_data),
        Request::Establish => refuse(id.facts.contains(Facts::HAS_QP), RefuseReason::HasQp),
        Request::GetRequest => refuse(!id.is_sync(), RefuseReason::NotSync),
        Request::Join { addr, .. } => {
            refuse(!is_datagram, RefuseReason::NotDatagram)?;
            refuse(!names_a_group(addr), RefuseReason::NoGroup(addr))?;
            refuse(lacks_datagrams(), RefuseReason::NoDatagrams)?;
            refuse(!id.facts.contains(Facts::HAS_DEVICE), RefuseReason::NoDevice)
        }
        Request::SetOption { option: CmOption::AckTimeout(power) } => {
            fits("the ACK timeout", power.into(), 5)?;
            refuse(is_datagram, RefuseReason::NotForDatagrams)
        }
        // On InfiniBand and RoCE the route has the type of service (`cma_resolve_iboe_route`); on iWARP the connect takes
        // it (`cma_connect_iw`).
        Request::SetOption { option: CmOption::Tos(_) } => {
            let has_route = matches!(id.state, State::RouteResolving | State::RouteResolved);
            refuse(has_route && id.transport() == Transport::InfiniBand, RefuseReason::AlreadySent)
        }
        Request::SetEce { ece } => {
            fits("vendor_id", ece.vendor_id, 24)?;
            refuse(is_datagram, RefuseReason::NotForDatagrams)?;
            // With a QP, librdmacm uses the QP's options.
            refuse(id.facts.contains(Facts::HAS_QP), RefuseReason::HasQp)?;
            refuse(ece.vendor_id == 0, RefuseReason::NoVendor)
        }
        Request::Migrate { to } => refuse(to.is_none() && id.is_sync(), RefuseReason::AlreadySync),
        Request::ResolveRoute
        | Request::Teardown
        | Request::Notify
        | Request::Leave { .. }
        | Request::SetOption { .. }
        | Request::Destroy
        | Request::DestroyNow => Ok(()),
    }
}

const fn refuse(is_refused: bool, reason: RefuseReason) -> Result<(), RefuseReason> {
    if is_refused { Err(reason) } else { Ok(()) }
}

fn check_private_data(kind: RequestKind, service: Service, private_data: &[u8]) -> Result<(), RefuseReason> {
    let (len, max) = (private_data.len(), kind.private_data_max(service));
    refuse(len > max, RefuseReason::PrivateDataTooLong { len, max })
}

/// Whether a join of this address can have a group: that of a multicast address, or for the wildcard one that the subnet
/// manager selects (`cma_set_mgid`). The kernel does not check this, and makes a group of any other address.
fn names_a_group(addr: SocketAddr) -> bool {
    let ip = addr.ip().to_canonical();
    ip.is_multicast() || ip.is_unspecified()
}

/// Checks that values fit into the fields of the messages and of the QP that carry them. The kernel cuts off or lowers
/// some, and fails at a later call because of others (`cm_format_req`, `rdma_connect`, `ibv_modify_qp`).
fn check_param(param: ConnParam) -> Result<(), RefuseReason> {
    fits("retry_count", param.retry_count.into(), 3)?;
    fits("rnr_retry_count", param.rnr_retry_count.into(), 3)?;
    fits("qp_num", param.qp_num, 24)
}

/// Checks a value against the number of bits of its field.
const fn fits(field: &'static str, value: u32, bits: u32) -> Result<(), RefuseReason> {
    let max = (1 << bits) - 1;
    refuse(value > max, RefuseReason::TooLarge { field, value, max })
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

/// Whether this is a loopback address (127.0.0.0/8, ::1), which the kernel takes for the wildcard (`cma_any_addr`).
pub(crate) fn is_loopback(addr: SocketAddr) -> bool {
    addr.ip().to_canonical().is_loopback()
}
