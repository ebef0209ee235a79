//! Connections on iWARP devices. Sources: `cma_iw_handler`, iwcm.c, siw_cm.c; docs/semantics.md, section 16.

use std::time::Duration;

use cmid_proto::datapath::{Caps, DataPath, QueuePair};
use cmid_proto::{CmEvent, ConnParam, Device, Errno, IdKey, PortSpace, Transport};
use cmid_sim::{Config, Fabric, QpState};

use crate::common::{EINVAL, Env, Equipment, SECOND, Side, ip};

/// `-ECONNRESET`, the status of every reject.
const RESET: i32 = -104;

/// One host with two addresses on an iWARP device.
pub(crate) fn env() -> Env {
    env_with(Config::default())
}

pub(crate) fn env_with(config: Config) -> Env {
    let mut env = Env::new();
    env.fabric = Fabric::new(config);
    env.host = env.fabric.host_with(&[ip("10.0.0.1"), ip("10.0.0.2")], Transport::Iwarp);
    (env.server, env.client) = (Side::new(&env.host), Side::new(&env.host));
    (env.cs, env.cc) = (env.server.channel(), env.client.channel());
    env
}

/// A listener, a client that has connected with this private data, and the id of the request.
fn requested(env: &mut Env, data: &[u8]) -> (IdKey, IdKey, Equipment) {
    let param = env.cp();
    requested_with(env, Caps::default(), param, data)
}

fn requested_with(env: &mut Env, caps: Caps, param: ConnParam, data: &[u8]) -> (IdKey, IdKey, Equipment) {
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    let qp = env.client.qp_with(client, caps);
    env.client.connect(client, param, data).unwrap();
    let request = env.server.next(env.cs);
    assert_eq!((request.kind, request.listener), (CmEvent::ConnectRequest, Some(listener)));
    (client, request.carries(data.len(), data).id, qp)
}

pub(crate) fn established(env: &mut Env) -> ([IdKey; 2], [Equipment; 2]) {
    established_with(env, [(1, 1); 2])
}

/// With the resources and depths of client and server.
pub(crate) fn established_with(env: &mut Env, depths: [(u8, u8); 2]) -> ([IdKey; 2], [Equipment; 2]) {
    established_by(env, Caps::default(), depths)
}

/// With the capacities of the client too.
pub(crate) fn established_by(env: &mut Env, caps: Caps, depths: [(u8, u8); 2]) -> ([IdKey; 2], [Equipment; 2]) {
    let params = depths.map(|(responder_resources, initiator_depth)| ConnParam {
        responder_resources,
        initiator_depth,
        ..env.cp()
    });
    let (client, server, client_qp) = requested_with(env, caps, params[0], &[]);
    let server_qp = env.server.qp(server);
    env.server.accept(server, params[1], b"yes").unwrap();
    env.client.next(env.cc).is(client, CmEvent::Established, 0).carries(3, b"yes");
    env.server.next(env.cs).is(server, CmEvent::Established, 0).carries(0, &[]);
    ([client, server], [client_qp, server_qp])
}

/// `siw_destroy_qp`, `siw_qp_cm_drop`.
#[test]
fn the_end_of_a_qp_ends_its_connection_for_both() {
    for of_client in [true, false] {
        let mut env = env();
        let ([client, server], _qps) = established(&mut env);
        if of_client {
            env.client.device.destroy_qp(client).unwrap();
        } else {
            env.server.device.destroy_qp(server).unwrap();
        }
        env.client.next(env.cc).is(client, CmEvent::Disconnected, 0);
        env.server.next(env.cs).is(server, CmEvent::Disconnected, 0);
    }
}

/// The library moves the QP of a failed accept to the error state, which closes TCP.
#[test]
fn an_accept_on_a_connection_ends_it() {
    for of_client in [true, false] {
        let mut env = env();
        let ([client, server], _qps) = established(&mut env);
        let param = env.cp();
        let refused =
            if of_client { env.client.accept(client, param, &[]) } else { env.server.accept(server, param, &[]) };
        assert_eq!(refused, EINVAL);
        env.client.next(env.cc).is(client, CmEvent::Disconnected, 0);
        env.server.next(env.cs).is(server, CmEvent::Disconnected, 0);
    }
}

#[test]
fn an_answer_for_a_qp_in_the_error_state_is_a_connect_error_with_its_data() {
    let mut env = env();
    let (client, server, _qp) = requested(&mut env, &[]);
    let param = env.cp();
    assert_eq!(env.client.accept(client, param, &[]), EINVAL);
    let _server_qp = env.server.qp(server);
    env.server.accept(server, param, b"yes").unwrap();
    env.client.next(env.cc).is(client, CmEvent::ConnectError, -22).carries(3, b"yes");
    env.server.next(env.cs).is(server, CmEvent::Established, 0);
    env.server.next(env.cs).is(server, CmEvent::Disconnected, 0);
    assert_eq!(env.client.disconnect(client), Ok(()));
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn an_accept_with_a_qp_in_the_error_state_rejects_the_peer() {
    let mut env = env();
    let (client, server, qp) = requested(&mut env, &[]);
    assert_eq!(env.client.accept(client, env.cp(), &[]), EINVAL);
    let param = ConnParam { qp_num: qp.qp.num(), ..env.cp() };
    assert_eq!(env.server.accept(server, param, &[]), EINVAL);
    env.client.next(env.cc).is(client, CmEvent::Rejected, RESET);
}

#[test]
fn an_accept_before_the_connect_leaves_the_qp_usable() {
    let mut env = env();
    env.server.listener(env.cs, "10.0.0.2:7");
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    let (qp, param) = (env.client.qp(client), env.cp());
    assert_eq!(env.client.accept(client, param, &[]), EINVAL);
    assert_ne!(qp.qp.state(), Ok(QpState::ERR));
    env.client.connect(client, param, &[]).unwrap();
    let server = env.server.next(env.cs).id;
    let _server_qp = env.server.qp(server);
    env.server.accept(server, param, &[]).unwrap();
    env.client.next(env.cc).is(client, CmEvent::Established, 0);
}

#[test]
fn a_connect_to_the_own_address_and_port_is_a_connect_error_with_its_own_data() {
    let mut env = env();
    let id = env.client.bound(env.cc, "10.0.0.1:9");
    env.client.resolve_addr(id, None, "10.0.0.1:9", 100).unwrap();
    env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
    let _qp = env.client.qp(id);
    env.client.routed(id, env.cc);
    env.connect(id, b"own");
    env.client.next(env.cc).is(id, CmEvent::ConnectError, -22).carries(3, b"own");
    env.client.quiet(env.cc, SECOND);
}

/// TCP takes the wildcard for the own address. `cma_resolve_loopback` binds an id only if it has no device; siw listens on no
/// loopback address.
#[test]
fn a_bound_id_connects_to_the_wildcard_and_reaches_its_own_address_and_nobody_at_the_loopback_address() {
    let mut env = env();
    let connect = |env: &mut Env, to: &str| {
        let id = env.client.bound(env.cc, "10.0.0.1:0");
        env.client.resolve_addr(id, None, to, 100).unwrap();
        env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
        let _qp = env.client.qp(id);
        env.client.routed(id, env.cc);
        env.client.connect(id, env.cp(), &[])
    };
    assert_eq!(connect(&mut env, "0.0.0.0:7"), Err(Errno(111)));
    let listener = env.server.listener(env.cs, "10.0.0.1:7");
    assert_eq!(connect(&mut env, "127.0.0.1:7"), Err(Errno(111)));
    assert_eq!(connect(&mut env, "0.0.0.0:7"), Ok(()));
    assert_eq!(env.server.next(env.cs).listener, Some(listener));
}

/// `rdma_notify` needs an `iw_cm_id`, and has nothing to do.
#[test]
fn a_notify_on_a_listener_does_nothing() {
    let mut env = env();
    let idle = env.server.id(env.cs);
    assert_eq!(env.server.notify(idle), EINVAL);
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    assert_eq!(env.server.notify(listener), Ok(()));
    let of_all = env.server.listener(env.cs, "0.0.0.0:8");
    assert_eq!(env.server.notify(of_all), EINVAL);
}

/// The socket takes the connection, and `iw_conn_req_handler` finds no listener for its IPv4 address.
#[test]
fn a_listener_on_the_wildcard_of_ipv6_rejects_requests_to_ipv4_addresses() {
    let mut env = env();
    env.server.listener(env.cs, "[::]:7");
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    let _qp = env.client.qp(client);
    env.connect(client, b"hello");
    env.client.next(env.cc).is(client, CmEvent::Rejected, RESET).carries(0, &[]);
    env.server.quiet(env.cs, SECOND);
}

#[test]
fn a_reject_carries_its_data_and_is_the_only_one() {
    let mut env = env();
    let (client, server, qp) = requested(&mut env, b"may I?");
    env.server.reject(server, &[9; 149]).unwrap();
    env.client.next(env.cc).is(client, CmEvent::Rejected, RESET).carries(149, &[9; 149]);
    assert_eq!(qp.qp.state(), Ok(QpState::ERR));
    assert_eq!(env.server.reject(server, &[]), EINVAL);
    assert_eq!(env.server.accept(server, env.cp(), &[]), EINVAL);
}

/// siw adds 4 to the length in a field of 8 bits (`siw_send_mpareqrep`), so no message with more works.
#[test]
fn private_data_has_at_most_251_bytes() {
    let mut env = env();
    let (client, server, _qp) = requested(&mut env, &[1; 251]);
    assert_eq!(env.server.reject(server, &[2; 252]), EINVAL);
    env.server.reject(server, &[2; 251]).unwrap();
    env.client.next(env.cc).is(client, CmEvent::Rejected, RESET).carries(251, &[2; 251]);
    let again = env.client.resolved(env.cc, "10.0.0.2:7");
    let _qp = env.client.qp(again);
    assert_eq!(env.client.connect(again, env.cp(), &[1; 252]), EINVAL);
}

#[test]
fn a_full_backlog_rejects() {
    let mut env = env();
    let listener = env.server.bound(env.cs, "10.0.0.2:7");
    env.server.listen(listener, 1).unwrap();
    let connect = |env: &mut Env| {
        let client = env.client.resolved(env.cc, "10.0.0.2:7");
        let (qp, param) = (env.client.qp(client), env.cp());
        env.client.connect(client, param, &[]).unwrap();
        (client, qp)
    };
    let first = connect(&mut env);
    let second = connect(&mut env);
    env.client.next(env.cc).is(second.0, CmEvent::Rejected, RESET);
    let request = env.server.next(env.cs);
    env.server.destroy(request.id).unwrap();
    env.client.next(env.cc).is(first.0, CmEvent::Rejected, RESET);
}

#[test]
fn there_are_no_datagrams() {
    let mut env = env();
    let _service = env.server.listener_in(PortSpace::Udp, env.cs, "10.0.0.2:7");
    let client = env.client.resolved_in(PortSpace::Udp, env.cc, "10.0.0.2:7");
    assert_eq!(env.client.connect(client, env.cp(), &[]), EINVAL);
    let bound = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.bind(bound, "10.0.0.1:0").unwrap();
    for addr in ["239.1.1.1:0", "0.0.0.0:0"] {
        assert_eq!(env.client.join(bound, addr, false), Err(Errno(38)));
    }
}

#[test]
fn the_loopback_address_cannot_be_resolved() {
    let mut env = env();
    for dst in ["127.0.0.1:7", "[::1]:7"] {
        let id = env.client.id(env.cc);
        assert_eq!(env.client.resolve_addr(id, None, dst, 100), EINVAL);
        assert_eq!(env.client.bind(id, "10.0.0.1:0"), EINVAL, "the lookup has bound it");
    }
}

/// `cma_acquire_dev_by_src_ip` compares the interface of the destination, and RoCE the source.
#[test]
fn an_id_bound_to_the_loopback_address_resolves_an_address_of_its_host() {
    let resolve = |env: &mut Env| {
        let id = env.client.bound(env.cc, "127.0.0.1:4");
        env.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
        (id, env.client.next(env.cc))
    };
    let mut env = env();
    let (id, event) = resolve(&mut env);
    event.is(id, CmEvent::AddrResolved, 0);
    assert_eq!(env.client.device.local_addr(id), Ok("127.0.0.1:4".parse().unwrap()));
    let mut roce = Env::new();
    let (id, event) = resolve(&mut roce);
    event.is(id, CmEvent::AddrError, -19);
}

#[test]
fn a_moved_neighbour_is_not_reported() {
    let mut env = env();
    let ([_, _], _qps) = established(&mut env);
    env.host.change_link_addr();
    env.client.quiet(env.cc, Duration::from_secs(2));
    env.server.quiet(env.cs, Duration::from_secs(2));
}

#[test]
fn the_transport_is_known_with_the_device() {
    let mut env = env();
    let id = env.client.id(env.cc);
    assert_eq!(env.client.device.transport(id), None);
    env.client.bind(id, "10.0.0.1:0").unwrap();
    assert_eq!(env.client.device.transport(id), Some(Transport::Iwarp));
    let mut roce = Env::new();
    let id = roce.client.resolved(roce.cc, "10.0.0.2:7");
    assert_eq!(roce.client.device.transport(id), Some(Transport::InfiniBand));
}

/// TCP connects from the loopback address to another address of the host.
#[test]
fn an_id_bound_to_the_loopback_address_connects_to_an_address_of_its_host() {
    for listens in [true, false] {
        let mut env = env();
        if listens {
            env.server.listener(env.cs, "10.0.0.2:7");
        }
        let id = env.client.bound(env.cc, "127.0.0.1:4");
        env.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
        env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
        env.client.routed(id, env.cc);
        let _qp = env.client.qp(id);
        assert_eq!(env.client.connect(id, env.cp(), &[]), if listens { Ok(()) } else { Err(Errno(111)) });
        if listens {
            let request = env.server.next(env.cs);
            assert_eq!(env.server.device.peer_addr(request.id), Ok("127.0.0.1:4".parse().unwrap()));
        }
    }
}

/// The lookup accepts a link-local address without a scope; TCP does not (`tcp_v6_connect`).
#[test]
fn a_link_local_address_without_a_scope_cannot_be_connected_to() {
    for (dst, refused) in [("[fe80::2]:7", Errno::EINVAL), ("[fe80::2%2]:7", Errno(111))] {
        let mut env = Env::new();
        env.fabric = Fabric::new(Config::default());
        env.host = env.fabric.host_with(&[ip("fe80::1"), ip("fe80::2")], Transport::Iwarp);
        env.client = Side::new(&env.host);
        env.cc = env.client.channel();
        let id = env.client.id(env.cc);
        env.client.resolve_addr(id, None, dst, 100).unwrap();
        env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
        env.client.routed(id, env.cc);
        let _qp = env.client.qp(id);
        assert_eq!(env.client.connect(id, env.cp(), &[]), Err(refused));
    }
}
