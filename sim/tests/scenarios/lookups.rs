//! Address resolution and binds in special cases: broadcasts, groups, links, loopback, interfaces without a device or
//! without ARP.

use std::net::SocketAddr;

use cmid_proto::datapath::{Attaching, DataPath};
use cmid_proto::{ChannelKey, CmEvent, ConnParam, Device as _, Errno, IdKey, Outcome, PortSpace};
use cmid_sim::{Caps, Config, Fabric};

use crate::common::{EINVAL, Env, Side, ip};

/// The result of a lookup: the own address, or the status of its ADDR_ERROR.
#[track_caller]
fn found(side: &mut Side, on: ChannelKey, id: IdKey) -> Result<SocketAddr, i32> {
    let seen = side.next(on);
    assert_eq!(seen.id, id);
    if seen.kind == CmEvent::AddrResolved {
        return Ok(side.local(id));
    }
    assert_eq!(seen.kind, CmEvent::AddrError);
    Err(seen.status)
}

/// Why a lookup finds nothing: the errno of the call, or the status of its event.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Refused(Errno),
    Status(i32),
}

#[test]
fn what_a_lookup_finds() {
    use Ends::{Refused, Status};
    let unbound: &[(&str, Outcome)] = &[];
    // The bind fails, and confines the id to the interface, which has no device and no ARP.
    let confined: &[(&str, Outcome)] = &[("172.16.0.1:0", Err(Errno::ENODEV))];
    // What an id binds before, from where and to where it looks up, and the own address that it gets.
    for (binds, src, dst, expected) in [
        (unbound, None, "10.0.0.2:7", Ok("10.0.0.1")),
        (unbound, None, "10.0.0.1:7", Ok("10.0.0.1")),
        (unbound, None, "0.0.0.0:7", Ok("127.0.0.1")),
        (unbound, None, "239.1.1.1:7", Err(Refused(Errno::ENETUNREACH))),
        (unbound, Some("10.0.0.1:0"), "239.1.1.1:7", Ok("10.0.0.1")),
        // Broadcasts.
        (unbound, None, "10.0.0.255:7", Ok("10.0.0.1")),
        (unbound, Some("10.0.0.2:0"), "10.0.0.255:7", Ok("10.0.0.2")),
        (unbound, Some("10.0.0.2:0"), "255.255.255.255:7", Ok("10.0.0.2")),
        (unbound, None, "255.255.255.255:7", Err(Refused(Errno::ENETUNREACH))),
        (unbound, None, "172.16.0.255:7", Err(Status(-19))),
        // Without ARP everybody is found, and then there is no device.
        (unbound, None, "172.16.0.9:7", Err(Status(-19))),
        // Sources are checked.
        (unbound, Some("10.0.0.9:0"), "10.0.0.2:7", Err(Refused(Errno::EADDRNOTAVAIL))),
        (unbound, Some("172.16.0.1:0"), "10.0.0.2:7", Err(Refused(Errno::ENODEV))),
        (unbound, Some("[::]:0"), "10.0.0.2:7", Err(Refused(Errno::EINVAL))),
        // From the loopback address.
        (&[("127.0.0.1:8", Ok(()))], None, "10.0.0.2:7", Err(Status(-19))),
        (unbound, Some("127.0.0.1:0"), "10.0.0.2:7", Err(Status(-19))),
        (unbound, Some("127.0.0.1:0"), "10.0.0.255:7", Err(Refused(Errno::EINVAL))),
        (unbound, Some("127.0.0.1:0"), "172.16.0.9:7", Err(Refused(Errno::EINVAL))),
        (unbound, Some("127.0.0.1:0"), "255.255.255.255:7", Err(Refused(Errno::ENODEV))),
        (unbound, Some("127.0.0.1:0"), "239.1.1.1:7", Err(Refused(Errno::ENODEV))),
        // Out of the interface.
        (&[confined[0], ("127.0.0.1:7", Ok(()))], None, "10.0.0.2:7", Err(Refused(Errno::EINVAL))),
        (confined, None, "239.1.1.1:7", Err(Status(-19))),
        // It has an IPv6 address, too (seed 1675982), which alone gives no route.
        (confined, None, "[ff0e::4]:7", Err(Status(-19))),
        (confined, None, "[fd99::1]:7", Err(Refused(Errno::ENETUNREACH))),
    ] {
        for port_space in [PortSpace::Tcp, PortSpace::Udp] {
            let Env { client: mut side, cc: on, .. } = Env::new();
            let id = side.id_in(port_space, on);
            for &(addr, outcome) in binds {
                assert_eq!(side.bind(id, addr), outcome, "{addr}");
            }
            let found = match side.resolve_addr(id, src, dst, 2000) {
                Ok(()) => found(&mut side, on, id).map(|own| own.ip()).map_err(Status),
                Err(errno) => Err(Refused(errno)),
            };
            assert_eq!(found, expected.map(ip), "{binds:?} {src:?} {dst} {port_space:?}");
        }
    }
}

#[test]
fn the_errno_of_a_lookup_does_not_tell_whether_it_has_bound_the_id() {
    let bound = EINVAL;
    for (src, dst, errno, binds) in [
        (None, "8.8.8.8:7", Errno::ENETUNREACH, bound),
        (Some("[::]:0"), "10.0.0.2:7", Errno::EINVAL, bound),
        (Some("127.0.0.1:0"), "10.0.0.255:7", Errno::EINVAL, bound),
        (Some("[fe80::1]:0"), "[fd99::1]:7", Errno::EINVAL, Ok(())),
        (Some("127.0.0.1:0"), "255.255.255.255:7", Errno::ENODEV, bound),
        (Some("172.16.0.1:0"), "10.0.0.2:7", Errno::ENODEV, Err(Errno::ENODEV)),
        (Some("10.0.0.9:0"), "10.0.0.2:7", Errno::EADDRNOTAVAIL, Ok(())),
    ] {
        let mut env = Env::new();
        let (side, on) = (&mut env.client, env.cc);
        let id = side.id(on);
        assert_eq!(side.resolve_addr(id, src, dst, 2000), Err(errno), "{src:?} {dst}");
        assert_eq!(side.bind(id, "10.0.0.1:0"), binds, "{src:?} {dst}");
    }
}

#[test]
fn with_arp_a_neighbour_that_is_not_there_is_not_found() {
    let mut env = Env::new();
    env.host.add_plain_addr(ip("172.17.0.1"));
    let (side, on) = (&mut env.client, env.cc);
    let with_arp = side.looks_up(on, "172.17.0.9:7");
    assert_eq!(found(side, on, with_arp), Err(-110));
}

/// `cma_check_port` compares with the current address of an id.
#[test]
fn a_lookup_frees_the_port_of_a_wildcard_on_the_other_addresses() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let [looked_up, other] = [(); 2].map(|()| side.id(on));
    side.resolve_addr(looked_up, Some("0.0.0.0:7"), "10.0.0.1:9", 2000).unwrap();
    assert_eq!(side.bind(other, "10.0.0.2:7"), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(found(&mut side, on, looked_up), Ok("10.0.0.1:7".parse().unwrap()));
    assert_eq!(side.bind(other, "10.0.0.1:7"), Err(Errno::EADDRINUSE));
    assert_eq!(side.bind(other, "10.0.0.2:7"), Ok(()));
}

#[test]
fn from_the_ipv6_loopback_address_a_group_is_found_and_then_there_is_no_device() {
    let (_fabric, mut side) = host_of_ipv6();
    let on = side.channel();
    for group in ["[ff0e::4]:7", "[ff02::5]:7"] {
        let id = side.id(on);
        side.resolve_addr(id, Some("[::1]:0"), group, 2000).unwrap();
        assert_eq!(found(&mut side, on, id), Err(-19), "{group}");
    }
}

#[test]
fn nothing_but_infiniband_will_do_for_ipoib() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    for addr in ["10.0.0.1:0", "172.16.0.1:0"] {
        let id = side.id_in(PortSpace::Ipoib, on);
        assert_eq!(side.bind(id, addr), EINVAL, "{addr}");
    }
    let id = side.id_in(PortSpace::Ipoib, on);
    side.resolve_addr(id, None, "0.0.0.0:7", 2000).unwrap();
    found(&mut side, on, id).unwrap();
    let (pd, cq) = (side.device.alloc_pd(id).unwrap(), side.device.create_cq(id, 32).unwrap());
    let qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, Caps::default());
    assert_eq!(qp.map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    for (dst, outcome) in [("10.0.0.2:7", Err(-22)), ("172.16.0.9:7", Err(-22)), ("127.0.0.1:7", Ok(ip("127.0.0.1")))] {
        let id = side.id_in(PortSpace::Ipoib, on);
        side.resolve_addr(id, None, dst, 2000).unwrap();
        assert_eq!(found(&mut side, on, id).map(|addr| addr.ip()), outcome, "{dst}");
    }
}

#[test]
fn what_is_valid_on_one_link_only_has_to_name_it() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    for addr in ["[ff02::1]:0", "[fe80::1]:0", "[ff12::1]:0"] {
        let id = side.id(on);
        assert_eq!(side.bind(id, addr), EINVAL, "{addr}");
    }
    let id = side.id(on);
    assert_eq!(side.bind(id, "[ff0e::1]:0"), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn there_is_no_way_to_a_mapped_address_whatever_an_id_is_bound_to() {
    let (_fabric, mut side) = host_of_ipv6();
    let on = side.channel();
    for (src, dst) in [(None, "[::ffff:10.0.0.2]:7"), (Some("[fd99::1]:0"), "[::ffff:10.0.0.2]:7")] {
        let id = side.id(on);
        assert_eq!(side.resolve_addr(id, src, dst, 2000), Err(Errno::ENETUNREACH), "{src:?}");
    }
    let id = side.id(on);
    assert_eq!(side.bind(id, "[::ffff:10.0.0.2]:7"), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn a_destination_of_another_family_is_misread_by_an_id_that_is_bound_on_the_way() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    for (bound, peer) in [(false, "0.0.0.0:7"), (true, "[fd99::1]:7")] {
        let id = side.id(on);
        let src = if bound { None } else { Some("10.0.0.2:0") };
        if bound {
            side.bind(id, "10.0.0.2:0").unwrap();
        }
        assert_eq!(side.resolve_addr(id, src, "[fd99::1]:7", 2000), EINVAL);
        side.listen(id, 1).unwrap();
        assert_eq!(side.device.peer_addr(id), Ok(peer.parse().unwrap()));
        // The id has a device, like every listener on an address.
        assert_eq!(side.disconnect(id), Ok(()));
    }
}

#[test]
fn the_destination_is_kept_though_there_is_no_port() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let taken = side.id(on);
    side.bind(taken, "10.0.0.2:9").unwrap();
    let id = side.id(on);
    assert_eq!(side.resolve_addr(id, Some("0.0.0.0:9"), "10.0.0.1:7", 2000), Err(Errno::EADDRNOTAVAIL));
    // The same with a source address of IPv6.
    let of_ipv6 = side.id(on);
    assert_eq!(side.resolve_addr(of_ipv6, Some("[::]:9"), "10.0.0.1:7", 2000), Err(Errno::EADDRNOTAVAIL));
    for id in [id, of_ipv6] {
        side.listen(id, 1).unwrap();
        assert_eq!(side.device.peer_addr(id), Ok("10.0.0.1:7".parse().unwrap()));
    }
}

#[test]
fn a_lookup_from_the_loopback_address_confines_as_others_do() {
    let Env { client: mut side, cc: on, .. } = Env::new();
    let id = side.id(on);
    side.resolve_addr(id, Some("127.0.0.1:0"), "10.0.0.2:7", 2000).unwrap();
    assert_eq!(found(&mut side, on, id), Err(-19));
    assert_eq!(side.resolve_addr(id, None, "8.8.8.8:7", 2000), EINVAL);
}

/// A host with two global and one link-local address of IPv6, and a process on it.
fn host_of_ipv6() -> (Fabric, Side) {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&["fd99::1", "fd99::2", "fe80::1"].map(ip));
    let side = Side::new(&host);
    (fabric, side)
}

#[test]
fn to_an_ipv6_group_a_host_goes_from_its_last_address_of_that_scope() {
    let (_fabric, mut side) = host_of_ipv6();
    let on = side.channel();
    for (dst, own) in [("[ff0e::1]:7", "fd99::2"), ("[ff02::1%2]:7", "fe80::1")] {
        let id = side.id_in(PortSpace::Udp, on);
        side.resolve_addr(id, None, dst, 2000).unwrap();
        assert_eq!(found(&mut side, on, id).map(|addr| addr.ip()), Ok(ip(own)), "{dst}");
    }
}

/// The failed bind has set the interface, although the port was taken (seed 1642587).
#[test]
fn an_id_that_is_confined_by_one_family_reaches_groups_of_the_other() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&["10.0.0.1", "10.0.0.2", "fd99::1", "fd99::2", "fe80::1"].map(ip));
    host.add_plain_addr(ip("fd98::1"));
    let mut side = Side::new(&host);
    let on = side.channel();
    for port in ["0.0.0.0:7", "[::]:8"] {
        side.listener(on, port);
    }
    let tries = [
        ("10.0.0.2:7", "[ff0e::4]:9", "fd99::2"),
        ("[fd99::1]:8", "[ff0e::4]:9", "fd99::2"),
        ("[fe80::1%2]:8", "[ff0e::4]:9", "fd99::2"),
        ("[fd99::2]:8", "239.1.1.1:9", "10.0.0.1"),
        ("10.0.0.2:7", "239.1.1.1:9", "10.0.0.1"),
    ];
    for (taken, group, own) in tries {
        let id = side.id_in(PortSpace::Tcp, on);
        assert_eq!(side.bind(id, taken), Err(Errno::EADDRNOTAVAIL), "{taken}");
        side.resolve_addr(id, None, group, 2000).unwrap();
        assert_eq!(found(&mut side, on, id).map(|addr| addr.ip()), Ok(ip(own)), "{taken} {group}");
    }
}

/// A link-local destination names the interface. It takes precedence over the interface that an earlier bind has
/// found (`cma_bind_addr`; seed 2703082).
#[test]
fn a_link_that_a_destination_names_counts_more_than_an_interface_that_was_found_before() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&["10.0.0.1", "fd99::1", "fe80::1"].map(ip));
    host.add_plain_addr(ip("172.16.0.1"));
    let mut side = Side::new(&host);
    let on = side.channel();
    for dst in ["[ff02::5%2]:7", "[fe80::1%2]:7"] {
        let id = side.id_in(PortSpace::Udp, on);
        assert_eq!(side.bind(id, "172.16.0.1:0"), Err(Errno::ENODEV));
        side.resolve_addr(id, None, dst, 2000).unwrap();
        assert_eq!(found(&mut side, on, id).map(|addr| addr.ip()), Ok(ip("fe80::1")), "{dst}");
    }
}

#[test]
fn the_link_is_known_to_who_names_it_and_to_a_child() {
    let (_fabric, mut side) = host_of_ipv6();
    let on = side.channel();
    let listener = side.listener(on, "[fe80::1%2]:7");
    assert_eq!(side.local(listener), "[fe80::1%2]:7".parse().unwrap());
    let client = side.resolved(on, "[fe80::1%2]:7");
    let own = side.local(client);
    assert_eq!((own.ip(), own.to_string().contains("%2")), (ip("fe80::1"), true));
    side.connect(client, ConnParam { qp_num: 5, ..Default::default() }, &[]).unwrap();
    let child = side.requested(on, listener);
    assert_eq!(side.local(child), "[fe80::1%2]:7".parse().unwrap());
    // The peer's address has the scope of the interface, so one can connect back.
    assert_eq!(side.device.peer_addr(child), Ok(own));
    side.resolved(on, &own.to_string());
}

#[test]
fn nobody_is_connected_from_the_loopback_address() {
    for (space, port) in [(PortSpace::Tcp, 0), (PortSpace::Tcp, 7), (PortSpace::Udp, 0)] {
        let mut env = Env::new();
        let taken = env.server.id_in(space, env.cs);
        env.server.bind(taken, "10.0.0.2:9").unwrap();
        let (side, on) = (&mut env.client, env.cc);
        let id = side.id_in(space, on);
        // The failed bind gives the id an interface; no other id without an address has one.
        assert_eq!(side.bind(id, "10.0.0.2:9"), Err(Errno::EADDRINUSE));
        side.resolve_addr(id, None, &format!("0.0.0.0:{port}"), 2000).unwrap();
        assert_eq!(found(side, on, id).map(|addr| addr.ip()), Ok(ip("127.0.0.1")));
        side.resolve_route(id).unwrap();
        side.next(on).is(id, CmEvent::RouteResolved, 0);
        assert_eq!(env.client.connect(id, env.cp(), &[]), EINVAL);
        assert_eq!(env.client.resolve_route(id), EINVAL, "it still has a route");
    }
}

#[test]
fn a_queue_has_as_many_work_requests_as_the_largest_cq() {
    let mut env = Env::new();
    let id = env.client.resolved(env.cc, "10.0.0.2:7");
    let device = &mut env.client.device;
    assert_eq!(device.create_cq(id, 1 << 15).map(drop).map_err(Errno::from), EINVAL);
    let (pd, cq) = (device.alloc_pd(id).unwrap(), device.create_cq(id, (1 << 15) - 1).unwrap());
    let mut attach = |max_send_wr| {
        let caps = Caps { max_send_wr, max_recv_wr: 0, ..Caps::default() };
        device.create_qp(Attaching::bare(id), &pd, &cq, &cq, caps).map(drop).map_err(Errno::from)
    };
    assert_eq!(attach(1 << 15), Err(Errno::EOVERFLOW));
    assert_eq!(attach((1 << 15) - 1), Ok(()));
}

/// The scope is that of the id's own address, so an id without an address has none to give.
#[test]
fn a_peer_that_a_lookup_seeks_has_a_scope_only_if_the_id_has_an_address() {
    let (_fabric, mut side) = host_of_ipv6();
    let on = side.channel();
    let id = side.id_in(PortSpace::Ipoib, on);
    side.resolve_addr(id, None, "[fe80::9]:7", 2000).unwrap();
    assert_eq!(side.device.peer_addr(id), Ok("[fe80::9]:7".parse().unwrap()));
    let bound = side.id(on);
    side.bind(bound, "[fd99::1]:0").unwrap();
    side.resolve_addr(bound, None, "[fe80::1]:7", 2000).unwrap();
    assert_eq!(side.device.peer_addr(bound), Ok("[fe80::1%2]:7".parse().unwrap()));
}
