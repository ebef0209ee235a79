//! Several devices of one host.

use cmid_proto::{ChannelKey, CmEvent, ConnParam, Errno, PortSpace, Transport};
use cmid_sim::{Config, Fabric};

use crate::common::{SECOND, Side, ip};

/// A host with two devices: its fabric, a client, a server, and their channels.
fn two_devices() -> (Fabric, Side, Side, [ChannelKey; 2]) {
    let fabric = Fabric::new(Config::default());
    let (one, other) = ([ip("10.0.0.1"), ip("10.0.0.2"), ip("fd00::1")], [ip("10.1.0.1"), ip("fd01::1")]);
    let host = fabric.host_with_devices(&[&one, &other], Transport::InfiniBand);
    let (mut client, mut server) = (Side::new(&host), Side::new(&host));
    let channels = [client.channel(), server.channel()];
    (fabric, client, server, channels)
}

/// The kernel listens for a service per device (`cm_find_listen`).
#[test]
fn a_listener_on_one_device_is_no_service_of_another_one() {
    // No listener; one on the other device, on another address of the same device.
    let places = [(None, (8, 1)), (Some("10.1.0.1:7"), (8, 1)), (Some("10.0.0.1:7"), (28, 2))];
    for (place, (rejected, unreachable)) in places {
        for (port_space, event, status) in
            [(PortSpace::Tcp, CmEvent::Rejected, rejected), (PortSpace::Udp, CmEvent::Unreachable, unreachable)]
        {
            let (_fabric, mut client, mut server, [cc, cs]) = two_devices();
            if let Some(place) = place {
                server.listener_in(port_space, cs, place);
            }
            let id = client.resolved_in(port_space, cc, "10.0.0.2:7");
            client.connect(id, ConnParam { qp_num: 5, ..ConnParam::default() }, &[]).unwrap();
            client.next(cc).is(id, event, status);
        }
    }
}

/// A QP number is unique at its device (`cm_insert_remote_qpn`).
#[test]
fn qps_of_two_devices_may_have_the_same_number() {
    let (_fabric, mut client, mut server, [cc, cs]) = two_devices();
    let listener = server.listener(cs, "0.0.0.0:7");
    for addr in ["10.0.0.1", "10.1.0.1"] {
        let id = client.id(cc);
        client.resolve_addr(id, Some(&format!("{addr}:0")), &format!("{addr}:7"), 1000).unwrap();
        client.next(cc).is(id, CmEvent::AddrResolved, 0);
        client.routed(id, cc);
        client.connect(id, ConnParam { qp_num: 5, ..ConnParam::default() }, &[]).unwrap();
        server.requested(cs, listener);
    }
}

/// The interface of a bound IPv4 address is the only way out, and does not lead to another interface of the host
/// (`addr4_resolve`).
#[test]
fn an_id_of_one_device_does_not_find_the_address_of_another_one() {
    let (_fabric, mut client, _server, [cc, _]) = two_devices();
    let mut lookup = |src, dst| {
        let id = client.id(cc);
        client.resolve_addr(id, src, dst, 1000).unwrap();
        let (seen, waited) = client.next_timed(cc);
        assert_eq!(seen.id, id);
        (seen.kind, seen.status, waited)
    };
    let (kind, status, waited) = lookup(Some("10.0.0.1:0"), "10.1.0.1:7");
    assert_eq!((kind, status, waited), (CmEvent::AddrError, -110, SECOND));
    for (src, dst) in [
        (Some("10.0.0.1:0"), "10.0.0.2:7"),
        (Some("10.1.0.1:0"), "10.1.0.1:7"),
        (None, "10.1.0.1:7"),
        (Some("[fd00::1]:0"), "[fd01::1]:7"),
    ] {
        let (kind, status, _) = lookup(src, dst);
        assert_eq!((kind, status), (CmEvent::AddrResolved, 0), "{src:?} {dst}");
    }
}

/// The GID is sought on the interface of the earlier attempt (`cma_validate_port`).
#[test]
fn after_a_failure_at_the_port_an_address_of_another_device_has_no_device() {
    let (_fabric, mut client, _server, [cc, _]) = two_devices();
    for (taken, there, [elsewhere, mapped]) in [
        ("10.1.0.1:9", "[::ffff:10.1.0.1]:0", ["10.0.0.1:0", "[::ffff:10.0.0.1]:0"]),
        ("10.0.0.2:9", "[::ffff:10.0.0.1]:0", ["10.1.0.1:0", "[::ffff:10.1.0.1]:0"]),
    ] {
        client.bound(cc, taken);
        let id = client.id(cc);
        assert_eq!(client.bind(id, taken), Err(Errno::EADDRINUSE));
        for addr in [elsewhere, mapped, "[fd99::1]:0"] {
            assert_eq!(client.bind(id, addr), Err(Errno::ENODEV), "{taken} {addr}");
        }
        assert_eq!(client.bind(id, there), Ok(()), "{there}");
    }
}
