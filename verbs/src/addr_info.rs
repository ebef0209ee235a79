//! Address resolution by rdma_getaddrinfo(3).

use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::net::SocketAddr;
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::io;

use cmid_proto::{Errno, PortSpace, Service};

use crate::errno;
use crate::ffi::{self, AF_INET, AF_INET6, c_int, ibv_qp_type, rdma_addrinfo};
use crate::macros;
use crate::sockaddr::{self, CAddr};

/// The `hints` of rdma_getaddrinfo(3). [`Hints::default`] sets none: the result is then an address to connect to, of
/// [`PortSpace::Tcp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// The result is an address to listen on; otherwise an address to connect to (`RAI_PASSIVE`).
    pub passive: bool,
    /// The node is a numeric address: no name is looked up (`RAI_NUMERICHOST`).
    pub numeric_host: bool,
    /// Do not query the ibacm daemon for a route (`RAI_NOROUTE`).
    pub no_route: bool,
    /// Only addresses of this family.
    pub family: Option<Family>,
    /// The port space; `None` derives it from the service.
    pub port_space: Option<PortSpace>,
    /// Reliable connected or datagrams; `None` derives it from the port space.
    pub service: Option<Service>,
    /// The local address, if node and service do not name one.
    pub src: Option<SocketAddr>,
    /// The peer's address, if neither node nor service is given.
    pub dst: Option<SocketAddr>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `AF_INET`.
    Ipv4,
    /// `AF_INET6`.
    Ipv6,
}

/// The parameters of an endpoint.
///
/// rdma_create_ep(3) creates an endpoint from them, but waits inside librdmacm. Requests of the core do the same
/// without waiting. Create an id of `port_space`. If the result is passive, bind the id to `src` and listen.
/// Otherwise resolve the address `dst` (from `src`, if there is one), then the route; attach a QP; and connect with
/// `connect` in front of the private data.
#[doc(alias("rdma_addrinfo", "rdma_create_ep"))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AddrInfo {
    /// An address to listen on, not to connect to.
    pub passive: bool,
    /// The port space; `None` if [`PortSpace`] does not have it.
    pub port_space: Option<PortSpace>,
    /// The kind of QP; `None` if [`Service`] does not have it.
    pub service: Option<Service>,
    /// The local address; `None` if there is none, or if it is not an IP address.
    pub src: Option<SocketAddr>,
    /// The peer's address; `None` if there is none, or if it is not an IP address.
    pub dst: Option<SocketAddr>,
    /// The full name of the node, if the resolver returned one.
    pub canonical_name: Option<String>,
    /// Path records (`struct ibv_path_data`) from the ibacm daemon; on InfiniBand only.
    pub route: Vec<u8>,
    /// Bytes that must precede the private data of the connect; on InfiniBand only.
    pub connect: Vec<u8>,
}

/// The reason why a lookup failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddrInfoError {
    /// The resolver's `EAI_` code (getaddrinfo(3)), below 0: no such name or service, no answer, none of that family.
    Resolver(i32),
    /// An errno: `EINVAL` if there is neither a node nor a service, or a name has a zero byte; `ENODEV` without RDMA
    /// devices; `ELIBACC` without librdmacm; `ENOMEM`; the errno that the resolver leaves with `EAI_SYSTEM`.
    System(Errno),
}

/// Resolves a node and a service to RDMA addresses (rdma_getaddrinfo(3)). Returns the first result of the resolver.
///
/// Blocks on name servers, and on the ibacm daemon if there is one. An event loop calls it from another thread, or
/// with [`Hints::numeric_host`].
///
/// # Errors
/// [`AddrInfoError`]. librdmacm returns −1 both with an errno and for the resolver's `EAI_BADFLAGS`; this function
/// assumes an errno.
#[doc(alias = "rdma_getaddrinfo")]
pub fn addr_info(node: Option<&str>, service: Option<&str>, hints: &Hints) -> Result<AddrInfo, AddrInfoError> {
    let (node, service) = (c_string(node)?, c_string(service)?);
    if node.is_none() && service.is_none() && *hints == Hints::default() {
        return Err(AddrInfoError::System(Errno::EINVAL));
    }
    ffi::load_rdmacm().map_err(|error| AddrInfoError::System(error.errno()))?;
    let as_ptr = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let (mut src, mut dst) = (hints.src.map(CAddr::new), hints.dst.map(CAddr::new));
    let c_hints = hints.to_c(src.as_mut(), dst.as_mut());
    // The resolver returns more results without hints than with empty ones.
    let c_hints: *const _ = if *hints == Hints::default() { ptr::null() } else { &raw const c_hints };
    let mut found = ptr::null_mut();
    errno::clear();
    // SAFETY: texts and hints may be null. The texts end with a zero, the hints point at addresses of the lengths that
    // they contain, and the result has a place. The library only reads texts and hints, and only during the call.
    let returned = unsafe { ffi::rdma_getaddrinfo(as_ptr(&node), as_ptr(&service), c_hints, &raw mut found) };
    match returned {
        0 => {}
        -1 | macros::EAI_SYSTEM => return Err(AddrInfoError::System(errno::last())),
        code => return Err(AddrInfoError::Resolver(code)),
    }
    let found = List(NonNull::new(found).ok_or(AddrInfoError::System(Errno::EIO))?);
    // SAFETY: rdma_getaddrinfo succeeded, so this points at an entry. It lives until `found` frees it.
    Ok(unsafe { copy(found.0.as_ref()) })
}

/// The result in librdmacm's form; dropping it frees it.
struct List(NonNull<rdma_addrinfo>);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by rdma_getaddrinfo and freed only here.
        unsafe { ffi::rdma_freeaddrinfo(self.0.as_ptr()) };
    }
}

impl Hints {
    /// The hints in librdmacm's form, which points at the addresses.
    fn to_c(self, src: Option<&mut CAddr>, dst: Option<&mut CAddr>) -> rdma_addrinfo {
        let flag = |on: bool, flag: c_int| if on { flag } else { 0 };
        // SAFETY: zeros are a value of it: integers and null pointers.
        let mut hints: rdma_addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
        hints.ai_flags = flag(self.passive, macros::RAI_PASSIVE)
            | flag(self.numeric_host, macros::RAI_NUMERICHOST)
            | flag(self.no_route, macros::RAI_NOROUTE)
            | flag(self.family.is_some(), macros::RAI_FAMILY);
        hints.ai_family = match self.family {
            Some(Family::Ipv4) => AF_INET,
            Some(Family::Ipv6) => AF_INET6,
            None => 0,
        };
        // One of the two fields selects the protocol for the resolver.
        let port_space = self.port_space;
        let service = self.service.or(port_space.map(PortSpace::service));
        hints.ai_qp_type = match service {
            Some(Service::Connected) => ibv_qp_type::IBV_QPT_RC as c_int,
            Some(Service::Datagram) => ibv_qp_type::IBV_QPT_UD as c_int,
            None => 0,
        };
        hints.ai_port_space = port_space.map_or(0, |space| space.code() as c_int);
        if let Some(src) = src {
            (hints.ai_src_addr, hints.ai_src_len) = (src.as_mut_ptr(), src.len());
        }
        if let Some(dst) = dst {
            (hints.ai_dst_addr, hints.ai_dst_len) = (dst.as_mut_ptr(), dst.len());
        }
        hints
    }
}

fn c_string(text: Option<&str>) -> Result<Option<CString>, AddrInfoError> {
    text.map(CString::new).transpose().map_err(|_| AddrInfoError::System(Errno::EINVAL))
}

/// # Safety
/// The entry is from rdma_getaddrinfo and is not freed yet.
unsafe fn copy(found: &rdma_addrinfo) -> AddrInfo {
    let passive = found.ai_flags & macros::RAI_PASSIVE != 0;
    let name = if passive { found.ai_src_canonname } else { found.ai_dst_canonname };
    // SAFETY: as the caller promises, each pointer is null, or points at as many bytes as the length beside it, and a
    // name ends with a zero.
    unsafe {
        AddrInfo {
            passive,
            port_space: port_space(found.ai_port_space),
            service: service(found.ai_qp_type),
            src: sockaddr::from_raw(found.ai_src_addr, found.ai_src_len),
            dst: sockaddr::from_raw(found.ai_dst_addr, found.ai_dst_len),
            canonical_name: (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned()),
            route: bytes(found.ai_route, found.ai_route_len),
            connect: bytes(found.ai_connect, found.ai_connect_len),
        }
    }
}

/// # Safety
/// `data` is null, or `len` bytes can be read there.
unsafe fn bytes(data: *const ffi::c_void, len: usize) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises; no other code writes to them now.
    unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
}

fn port_space(code: c_int) -> Option<PortSpace> {
    [PortSpace::Tcp, PortSpace::Ib, PortSpace::Udp, PortSpace::Ipoib]
        .into_iter()
        .find(|space| i64::from(space.code()) == i64::from(code))
}

fn service(qp_type: c_int) -> Option<Service> {
    match u32::try_from(qp_type) {
        Ok(ibv_qp_type::IBV_QPT_RC) => Some(Service::Connected),
        Ok(ibv_qp_type::IBV_QPT_UD) => Some(Service::Datagram),
        Ok(_) | Err(_) => None,
    }
}

impl fmt::Display for AddrInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddrInfoError::Resolver(code) => {
                // SAFETY: gai_strerror takes any number. It returns a text that ends with a zero and is never freed.
                let text = unsafe { CStr::from_ptr(ffi::gai_strerror(*code)) };
                f.write_str(&text.to_string_lossy())
            }
            AddrInfoError::System(errno) => errno.fmt(f),
        }
    }
}

impl core::error::Error for AddrInfoError {}

impl From<AddrInfoError> for io::Error {
    /// Has the kind of the errno, or [`io::ErrorKind::Other`].
    fn from(error: AddrInfoError) -> Self {
        match error {
            AddrInfoError::System(errno) => io::Error::new(io::Error::from(errno).kind(), error),
            AddrInfoError::Resolver(_) => io::Error::other(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nonsense_is_refused_without_a_device() {
        let nothing = addr_info(None, None, &Hints::default());
        assert_eq!(nothing, Err(AddrInfoError::System(Errno::EINVAL)));
        let zero = addr_info(Some("a\0b"), None, &Hints::default());
        assert_eq!(zero, Err(AddrInfoError::System(Errno::EINVAL)));
    }

    #[test]
    fn the_resolver_s_codes_have_a_text() {
        assert_eq!(AddrInfoError::Resolver(-2).to_string(), "Name or service not known");
        assert_eq!(AddrInfoError::System(Errno::ENODEV).to_string(), "ENODEV");
        let unknown = io::Error::from(AddrInfoError::Resolver(-2));
        assert_eq!((unknown.kind(), unknown.to_string().as_str()), (io::ErrorKind::Other, "Name or service not known"));
        let busy = io::Error::from(AddrInfoError::System(Errno::EBUSY));
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    }
}
