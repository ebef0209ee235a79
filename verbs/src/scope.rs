//! The scopes of link-local addresses.
//!
//! The messages of InfiniBand and RoCE carry addresses without scopes, so the kernel reports none for the id of a request
//! (`cma_save_ip6_info`).

use core::net::{Ipv6Addr, SocketAddr};
use std::fs;

use cmid_proto::Errno;

/// The addresses of IPv6 in this network namespace (proc_pid_net(5)).
const ADDRESSES: &str = "/proc/thread-self/net/if_inet6";

/// The address with the scope of the interface of `local`, the local address of the id, if it needs one.
pub(crate) fn scoped(addr: SocketAddr, local: impl FnOnce() -> Result<SocketAddr, Errno>) -> SocketAddr {
    let SocketAddr::V6(mut v6) = addr else { return addr };
    if v6.scope_id() == 0 && v6.ip().is_unicast_link_local() {
        if let Ok(SocketAddr::V6(local)) = local() {
            let scope = if local.scope_id() == 0 { interface_of(*local.ip()) } else { local.scope_id() };
            v6.set_scope_id(scope);
        }
    }
    v6.into()
}

/// Returns the index of the interface that has this address; 0 if none has it, or more than one.
fn interface_of(ip: Ipv6Addr) -> u32 {
    fs::read_to_string(ADDRESSES).map_or(0, |addresses| find(&addresses, ip))
}

/// Finds it among lines of an address and the index of its interface, in hexadecimal, and other fields.
fn find(addresses: &str, ip: Ipv6Addr) -> u32 {
    let index = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let found = u128::from_str_radix(fields.next()?, 16).ok()? == u128::from(ip);
        u32::from_str_radix(fields.next()?, 16).ok().filter(|_| found)
    };
    let mut found = addresses.lines().filter_map(index);
    found.next().filter(|_| found.next().is_none()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "fe800000000000000000000000ff0099 0b 40 20 80     veth1\n\
                         fe800000000000000000000000ff0001 02 40 20 80     vlan2\n\
                         fe800000000000000000000000ff0001 03 40 20 80     vlan3\n\
                         00000000000000000000000000000001 01 80 10 80       lo\nnonsense\n";

    #[test]
    fn an_address_of_one_interface_has_its_index() {
        let of = |text: &str| find(LINES, text.parse().unwrap());
        assert_eq!(["fe80::ff:99", "fe80::ff:1", "fe80::2", "::1"].map(of), [11, 0, 0, 1]);
    }

    #[test]
    fn only_a_link_local_address_without_a_scope_is_given_one() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local = || Ok(addr("[fe80::1%7]:1"));
        for (given, scoped_to) in [
            ("[fe80::2]:9", "[fe80::2%7]:9"),
            ("[fe80::2%3]:9", "[fe80::2%3]:9"),
            ("[fd99::2]:9", "[fd99::2]:9"),
            ("10.0.0.1:9", "10.0.0.1:9"),
        ] {
            assert_eq!(scoped(addr(given), local), addr(scoped_to));
        }
        assert_eq!(scoped(addr("[fe80::2]:9"), || Err(Errno::ENOENT)), addr("[fe80::2]:9"));
    }
}
