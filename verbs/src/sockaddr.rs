//! Conversion between `core::net::SocketAddr` and C's socket addresses.

use core::mem::{MaybeUninit, size_of};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::ffi::{
    AF_INET, AF_INET6, in_addr, in6_addr, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
};

/// An address in C's form, with room for any family.
pub(crate) struct CAddr(sockaddr_storage);

static_assertions::const_assert!(size_of::<sockaddr_in>() <= size_of::<sockaddr_storage>());
static_assertions::const_assert!(size_of::<sockaddr_in6>() <= size_of::<sockaddr_storage>());
static_assertions::const_assert!(align_of::<sockaddr_in6>() <= align_of::<sockaddr_storage>());

impl CAddr {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        let mut storage = no_address();
        let place = &raw mut storage;
        match addr {
            SocketAddr::V4(v4) => {
                let sin = sockaddr_in {
                    sin_family: AF_INET as sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is as large and as aligned as the address (asserted above).
                unsafe { place.cast::<sockaddr_in>().write(sin) };
            }
            SocketAddr::V6(v6) => {
                let sin6 = sockaddr_in6 {
                    sin6_family: AF_INET6 as sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: the storage is as large and as aligned as the address (asserted above).
                unsafe { place.cast::<sockaddr_in6>().write(sin6) };
            }
        }
        CAddr(storage)
    }

    /// Returns a pointer for a C function that takes `struct sockaddr *` and only reads it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Returns a storage without a family.
fn no_address() -> sockaddr_storage {
    // SAFETY: sockaddr_storage is plain integers; all bytes zero is a value of it.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Returns the address in a `sockaddr_storage`; `None` if it is neither IPv4 nor IPv6 (without an address the family is
/// 0).
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *storage;
    match i32::from(storage.ss_family) {
        AF_INET => {
            // SAFETY: the storage holds at least a sockaddr_in, of which every bit pattern is a value.
            let sin = unsafe { place.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: the storage holds at least a sockaddr_in6, of which every bit pattern is a value.
            let sin6 = unsafe { place.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(sin6.sin6_port), sin6.sin6_flowinfo, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.99.0.1:4791", "0.0.0.0:0", "[fd99::1]:18515", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&CAddr::new(addr).0), Some(addr));
        }
    }

    #[test]
    fn other_families_are_no_address() {
        let mut none = CAddr::new("10.0.0.1:1".parse().unwrap());
        none.0.ss_family = 0;
        assert_eq!(from_c(&none.0), None);
        none.0.ss_family = 27; // AF_IB
        assert_eq!(from_c(&none.0), None);
    }
}
