//! Conversion between `core::net::SocketAddr` and C's socket addresses, which are those of the kernel.

use core::mem::size_of;
use core::net::SocketAddr;

use crate::ffi::{sockaddr, sockaddr_storage};
use crate::kernel::abi::Storage;
use crate::kernel::answer;

/// An address in C's form, with room for any family.
pub(crate) struct CAddr(Storage);

static_assertions::assert_eq_size!(Storage, sockaddr_storage);
static_assertions::assert_eq_align!(Storage, sockaddr_storage);

impl CAddr {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        CAddr(answer::storage(&addr).0)
    }

    /// Returns a pointer for a C function that takes `struct sockaddr *` and only reads it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Returns the address in a `sockaddr_storage`; `None` if it is neither IPv4 nor IPv6 (without an address the family is
/// 0).
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: it is integers without padding, so each of its bytes is initialized.
    let bytes = unsafe { (&raw const *storage).cast::<[u8; size_of::<sockaddr_storage>()]>().read() };
    answer::address(&bytes, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6};

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.99.0.1:4791", "0.0.0.0:0", "[fd99::1]:18515", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            let mut c = CAddr::new(addr);
            // SAFETY: the two have one size and alignment, and any bytes are integers.
            assert_eq!(from_c(unsafe { &*c.as_mut_ptr().cast() }), Some(addr));
        }
    }

    #[test]
    fn the_fields_are_those_of_c() {
        let mut c = CAddr::new("10.99.0.1:4791".parse().unwrap());
        // SAFETY: it is a sockaddr_in, with room for more.
        let sin = unsafe { c.as_mut_ptr().cast::<sockaddr_in>().read() };
        assert_eq!((i32::from(sin.sin_family), sin.sin_port), (AF_INET, 4791_u16.to_be()));
        assert_eq!(sin.sin_addr.s_addr.to_ne_bytes(), [10, 99, 0, 1]);
        let mut c = CAddr::new("[fe80::1%3]:1".parse().unwrap());
        // SAFETY: it is a sockaddr_in6, with room for more.
        let sin6 = unsafe { c.as_mut_ptr().cast::<sockaddr_in6>().read() };
        assert_eq!((i32::from(sin6.sin6_family), sin6.sin6_port), (AF_INET6, 1_u16.to_be()));
        assert_eq!((sin6.sin6_addr.s6_addr[..2].to_vec(), sin6.sin6_scope_id), (vec![0xfe, 0x80], 3));
    }

    #[test]
    fn other_families_are_no_address() {
        // SAFETY: zeros are a value of it.
        let mut none: sockaddr_storage = unsafe { core::mem::zeroed() };
        assert_eq!(from_c(&none), None);
        none.ss_family = 27; // AF_IB
        assert_eq!(from_c(&none), None);
    }
}
