//! Section "addresses" of the conformance scenarios.

use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::datapath::{DataPath, QueuePair as _};
use cmid_proto::{Call, CmEvent, ConnParam, Device as _, Errno, Transport};
use cmid_sim::{Config, Fabric};

use crate::common::{EINVAL, Env, SECOND, Side, ip};

#[test]
fn a_wildcard_keeps_others_off_its_port_until_it_goes() {
    let Env { server: mut side, cs: on, .. } = Env::new();
    let c = side.id(on);
    assert_eq!(side.bind(c, "0.0.0.0:8000"), Ok(()));
    let d = side.id(on);
    assert_eq!(side.bind(d, "10.0.0.1:8000"), Err(Errno::EADDRNOTAVAIL));
    side.destroy(c).unwrap();
    assert_eq!(side.bind(d, "10.0.0.1:8000"), Ok(()));
}

#[test]
fn an_id_that_is_bound_has_a_route_to_the_loopback_address() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, Some("10.0.0.1:0"), "127.0.0.1:7", 2000), Ok(()));
    side.next(on).is(id, CmEvent::AddrResolved, 0);
    assert_eq!(side.resolve_route(id), Ok(()));
    side.next(on).is(id, CmEvent::RouteResolved, 0);
}

#[test]
fn from_an_interface_everybody_is_a_neighbour() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, Some("10.0.0.1:0"), "8.8.8.8:7", 500), Ok(()));
    let (event, waited) = side.next_timed(on);
    event.is(id, CmEvent::AddrError, -110);
    assert_eq!(waited, Duration::from_millis(500));
}

#[test]
fn a_destination_that_was_not_found_is_remembered() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, None, "8.8.8.8:7", 500), Err(Errno::ENETUNREACH));
    assert_eq!(side.device.peer_addr(id), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(side.listen(id, 1), Ok(()));
    assert_eq!(side.device.peer_addr(id), Ok("8.8.8.8:7".parse().unwrap()));
}

/// The kernel copies the length of the source's family, and a later bind changes the family only.
#[test]
fn half_of_an_ipv6_destination_is_remembered_beside_an_ipv4_source() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let [first, id] = [side.id(on), side.id(on)];
    assert_eq!(side.bind(first, "10.0.0.1:7"), Ok(()));
    assert_eq!(side.resolve_addr(id, Some("10.0.0.1:7"), "[ff0e::4]:0", 500), Err(Errno::EADDRINUSE));
    assert_eq!(side.bind(id, "[::]:0"), Ok(()));
    assert_eq!(side.device.peer_addr(id), Ok("[ff0e::]:0".parse().unwrap()));
}

#[test]
fn the_wildcard_is_nobody() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    for (dst, peer) in [("0.0.0.0:0", Err(Errno::EADDRNOTAVAIL)), ("0.0.0.0:7", Ok("0.0.0.0:7".parse().unwrap()))] {
        let id = side.id(on);
        assert_eq!(side.resolve_addr(id, None, dst, 2000), Ok(()));
        side.next(on).is(id, CmEvent::AddrResolved, 0);
        assert_eq!(side.device.peer_addr(id), peer);
    }
}

#[test]
fn behaviour_42_nobody_has_the_address() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, Some("10.0.0.1:0"), "10.0.0.77:7", 1500), Ok(()));
    assert_eq!(side.resolve_addr(id, None, "10.0.0.77:7", 1500), EINVAL);
    let (event, waited) = side.next_timed(on);
    event.is(id, CmEvent::AddrError, -110);
    assert_eq!(waited, Duration::from_millis(1500));
    assert_eq!(side.resolve_addr(id, None, "10.0.0.77:7", 0), Ok(()));
    let (event, waited) = side.next_timed(on);
    event.is(id, CmEvent::AddrError, -110);
    assert!(waited < Duration::from_millis(1));
    // The id then resolves another address.
    assert_eq!(side.resolve_addr(id, None, "10.0.0.2:7", 100), Ok(()));
    side.next(on).is(id, CmEvent::AddrResolved, 0);
}

#[test]
fn a_first_interface_sticks() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, None, "172.16.0.1:7", 100), Ok(()));
    side.next(on).is(id, CmEvent::AddrError, -19);
    assert_eq!(side.resolve_addr(id, None, "10.0.0.2:7", 100), Ok(()));
    side.next(on).is(id, CmEvent::AddrError, -19);
}

#[test]
fn the_own_address_is_known_when_the_event_is_read() {
    let mut env = Env::new();
    let far = env.fabric.host(&[ip("10.0.0.3")]);
    let (side, on) = (&mut env.client, env.cc);
    let id = side.looks_up(on, "10.0.0.3:7");
    env.fabric.advance_by(SECOND);
    use cmid_proto::Device;
    assert_eq!(side.device.local_addr(id), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(side.device.peer_addr(id), Ok("10.0.0.3:7".parse().unwrap()));
    side.next(on).is(id, CmEvent::AddrResolved, 0);
    assert_eq!(side.local(id).ip(), ip("10.0.0.1"));
    // A neighbour that was resolved once is resolved again, even with its link down.
    far.set_link(false);
    let id = side.id(on);
    side.resolve_addr(id, None, "10.0.0.3:7", 1).unwrap();
    side.next(on).is(id, CmEvent::AddrResolved, 0);
}

#[test]
fn a_host_without_a_device_has_no_channels() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&[]);
    host.add_plain_addr(ip("10.0.0.1"));
    let mut side = Side::new(&host);
    let channel = side.fresh_channel();
    assert_eq!(side.call(Call::OpenChannel { channel }), Err(Errno::ENODEV));
}

/// The scope replaces the interface of an earlier attempt (`cma_check_linklocal`).
#[test]
fn a_scope_selects_the_interface_of_a_bind() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&[ip("10.0.0.1"), ip("10.0.0.2"), ip("fe80::1")]);
    host.add_plain_addr(ip("172.16.0.1"));
    let mut side = Side::new(&host);
    let on = side.channel();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, Some("172.16.0.1:3"), "10.0.0.2:3", 2000), Err(Errno::ENODEV));
    // Another interface does not have the address, and is kept, and so is one that there is not.
    for scope in [1, 3, 9] {
        assert_eq!(side.bind(id, &format!("[fe80::1%{scope}]:2")), Err(Errno::ENODEV), "{scope}");
        assert_eq!(side.bind(id, "10.0.0.1:2"), Err(Errno::ENODEV), "{scope}");
        let lost = side.id(on);
        let dst = format!("[fe80::1%{scope}]:2");
        assert_eq!(side.resolve_addr(lost, None, &dst, 2000), Err(Errno::ENETUNREACH), "{scope}");
    }
    assert_eq!(side.bind(id, "[fe80::1%2]:2"), Ok(()));
}

/// Only 0.0.0.0 is the wildcard, no other address of 0.0.0.0/8 (`ipv4_is_zeronet` since Linux 5.3).
#[test]
fn an_address_that_begins_with_0_is_one_like_others() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&[ip("10.0.0.1"), ip("0.1.2.3")]);
    let mut side = Side::new(&host);
    let on = side.channel();
    let (own, other) = (side.id(on), side.id(on));
    assert_eq!(side.bind(own, "0.1.2.3:7"), Ok(()));
    assert!(side.device.alloc_pd(own).is_ok(), "it has the device");
    assert_eq!(side.bind(other, "0.1.2.4:7"), Err(Errno::EADDRNOTAVAIL));
}

/// The kernel takes the times as numbers without a sign.
#[test]
fn a_negative_time_is_a_long_one() {
    let mut env = Env::new();
    let (side, on) = (&mut env.client, env.cc);
    let id = side.id(on);
    side.resolve_addr(id, None, "10.0.0.99:7", -1).unwrap();
    side.quiet(on, SECOND * 1000);
    let id = side.looks_up(on, "10.0.0.2:7");
    side.next(on).is(id, CmEvent::AddrResolved, 0);
    assert_eq!(side.call(Call::ResolveRoute { id, timeout_ms: 0 }), EINVAL);
    assert_eq!(side.call(Call::ResolveRoute { id, timeout_ms: -1 }), Ok(()));
}

/// The interface of an earlier attempt is kept, and a mapped address has the GID of its IPv4 address.
#[test]
fn a_mapped_address_can_be_bound_after_a_failed_bind() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let (first, second) = (side.id(on), side.id(on));
    assert_eq!(side.bind(first, "[::ffff:10.0.0.2]:0"), Err(Errno::EADDRNOTAVAIL));
    side.bind(first, "10.0.0.2:4").unwrap();
    assert_eq!(side.bind(second, "10.0.0.2:4"), Err(Errno::EADDRINUSE));
    assert_eq!(side.resolve_addr(second, Some("[::ffff:10.0.0.2]:5"), "10.0.0.1:3", 2000), EINVAL);
    side.listen(second, 1).unwrap();
    assert_eq!(side.local(second), "[::ffff:10.0.0.2]:5".parse().unwrap());
}

/// siw makes a socket for each device, and restricts it to the device if the address is the wildcard
/// (`siw_create_listen`).
#[test]
fn on_two_iwarp_devices_nothing_listens_on_a_loopback_address() {
    for (transport, two, listens) in [
        (Transport::Iwarp, true, Err(Errno::EADDRINUSE)),
        (Transport::Iwarp, false, Ok(())),
        (Transport::InfiniBand, true, Ok(())),
    ] {
        let fabric = Fabric::new(Config::default());
        let (one, other) = ([ip("10.0.0.1"), ip("10.0.0.2")], [ip("10.1.0.1")]);
        let devices: &[&[IpAddr]] = &[&one, &other];
        let mut side = Side::new(&fabric.host_with_devices(if two { devices } else { &devices[..1] }, transport));
        let on = side.channel();
        for addr in ["127.0.0.1:7", "[::1]:8"] {
            let id = side.id(on);
            side.bind(id, addr).unwrap();
            assert_eq!(side.listen(id, 1), listens, "{addr}");
            // It stays bound, and keeps its port.
            assert_eq!(side.bind(id, "10.0.0.1:9"), EINVAL);
            let next = side.id(on);
            assert_eq!(side.bind(next, addr), Err(Errno::EADDRNOTAVAIL));
        }
        // A lookup from there that fails binds the id, too.
        let id = side.id(on);
        assert_eq!(side.resolve_addr(id, Some("127.0.0.1:0"), "10.0.0.255:0", 100), EINVAL);
        assert_eq!(side.listen(id, 1), listens);
        let wildcard = side.id(on);
        side.bind(wildcard, "0.0.0.0:9").unwrap();
        side.listen(wildcard, 1).unwrap();
    }
}

/// siw listens on a loopback address itself; on InfiniBand the listener accepts requests from everywhere.
#[test]
fn a_listener_on_a_loopback_address_is_reached_over_infiniband_only() {
    for (transport, found) in [(Transport::Iwarp, Err(Errno(111))), (Transport::InfiniBand, Ok(()))] {
        let fabric = Fabric::new(Config::default());
        let mut side = Side::new(&fabric.host_with(&[ip("10.0.0.1"), ip("10.0.0.2")], transport));
        let on = side.channel();
        side.listener(on, "127.0.0.1:7");
        let client = side.resolved(on, "10.0.0.2:7");
        let qp = side.qp(client);
        let param = ConnParam { qp_num: qp.qp.num(), ..ConnParam::default() };
        assert_eq!(side.connect(client, param, &[]), found);
    }
}

/// iWARP looks for the interface of the way out, RoCE for the source (`cma_acquire_dev_by_src_ip`).
#[test]
fn from_the_loopback_address_to_a_group_goes_an_id_of_an_iwarp_device() {
    for (transport, status) in [(Transport::Iwarp, Ok(())), (Transport::InfiniBand, Err(-19))] {
        let fabric = Fabric::new(Config::default());
        let mut side = Side::new(&fabric.host_with(&[ip("10.0.0.1"), ip("fd99::1"), ip("fe80::1")], transport));
        let on = side.channel();
        let id = side.id(on);
        side.resolve_addr(id, Some("[::1]:4"), "[ff02::5]:4", 2000).unwrap();
        let seen = side.next(on);
        match status {
            Ok(()) => {
                seen.is(id, CmEvent::AddrResolved, 0);
                assert_eq!(side.local(id), "[::1]:4".parse().unwrap());
                side.resolve_route(id).unwrap();
                side.next(on).is(id, CmEvent::RouteResolved, 0);
            }
            Err(status) => drop(seen.is(id, CmEvent::AddrError, status)),
        }
    }
}
