//! `rdma_set_option`: what each option allows, in which state.

use std::time::Duration;

use cmid_proto::datapath::QueuePair;
use cmid_proto::{CmEvent, CmOption, ConnParam, Errno, IdKey};
use cmid_sim::{Config, Flavour};

use crate::common::{EINVAL, Env, SECOND, Side, ip};

#[test]
fn behaviour_40_a_shared_address_is_for_one_listener() {
    let mut env = Env::new();
    let [a, b] = [0; 2].map(|_| {
        let id = env.server.id(env.cs);
        env.server.set(id, CmOption::ReuseAddr(true)).unwrap();
        assert_eq!(env.server.bind(id, "10.0.0.2:7"), Ok(()));
        id
    });
    assert_eq!(env.server.listen(a, 1), Err(Errno::EADDRINUSE));
    assert_eq!(env.server.listen(b, 1), Err(Errno::EADDRINUSE));
    // Both ids are unchanged: one can connect, and without it the other can listen.
    assert_eq!(env.server.resolve_addr(b, None, "10.0.0.1:7", 100), Ok(()));
    env.server.next(env.cs).is(b, CmEvent::AddrResolved, 0);
    env.server.destroy(b).unwrap();
    assert_eq!(env.server.listen(a, 1), Ok(()));
    // A listener does not share its address.
    let c = env.server.id(env.cs);
    env.server.set(c, CmOption::ReuseAddr(true)).unwrap();
    assert_eq!(env.server.bind(c, "10.0.0.2:7"), Err(Errno::EADDRINUSE));
    assert_eq!(env.server.set(a, CmOption::ReuseAddr(true)), EINVAL);
}

#[test]
fn both_must_share() {
    let mut env = Env::new();
    let [a, b] = [0; 2].map(|_| env.server.id(env.cs));
    env.server.bind(a, "10.0.0.2:7").unwrap();
    env.server.set(b, CmOption::ReuseAddr(true)).unwrap();
    assert_eq!(env.server.bind(b, "10.0.0.2:7"), Err(Errno::EADDRINUSE));
    // The option counts when it is set late, too. It can be unset only in an idle id.
    assert_eq!(env.server.set(a, CmOption::ReuseAddr(true)), Ok(()));
    assert_eq!(env.server.set(a, CmOption::ReuseAddr(false)), EINVAL);
    assert_eq!(env.server.bind(b, "10.0.0.2:7"), Ok(()));
    let c = env.server.id(env.cs);
    env.server.set(c, CmOption::ReuseAddr(true)).unwrap();
    assert_eq!(env.server.set(c, CmOption::ReuseAddr(false)), Ok(()));
    assert_eq!(env.server.bind(c, "10.0.0.2:7"), Err(Errno::EADDRINUSE));
}

#[test]
fn families_share_a_port_if_both_keep_to_themselves() {
    let mut env = Env::new();
    let [v4, v6] = [0; 2].map(|_| env.server.id(env.cs));
    env.server.bind(v4, "0.0.0.0:7").unwrap();
    assert_eq!(env.server.bind(v6, "[::]:7"), Err(Errno::EADDRNOTAVAIL));
    env.server.set(v6, CmOption::AfOnly(true)).unwrap();
    assert_eq!(env.server.bind(v6, "[::]:7"), Ok(()));
    assert_eq!(env.server.set(v6, CmOption::AfOnly(true)), Ok(()));
    env.server.listen(v6, 1).unwrap();
    assert_eq!(env.server.set(v6, CmOption::AfOnly(true)), EINVAL);
    // The listener gets no requests over IPv4.
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(c, &[]);
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
}

/// The owners of a port are looked at newest first (`cma_check_port`).
#[test]
fn the_newest_owner_of_a_port_decides_the_error() {
    let shared = |env: &mut Env, addr| {
        let id = env.server.id(env.cs);
        env.server.set(id, CmOption::ReuseAddr(true)).unwrap();
        env.server.bind(id, addr).unwrap();
        id
    };
    for (addrs, error) in
        [(["10.0.0.1:9", "0.0.0.0:9"], Errno::EADDRNOTAVAIL), (["0.0.0.0:9", "10.0.0.1:9"], Errno::EADDRINUSE)]
    {
        let mut env = Env::new();
        for addr in addrs {
            shared(&mut env, addr);
        }
        let alone = env.server.id(env.cs);
        assert_eq!(env.server.bind(alone, "10.0.0.1:9"), Err(error));
        // A listener does not share either, and its own record does not count.
        let listener = shared(&mut env, "10.0.0.1:9");
        shared(&mut env, addrs[1]);
        assert_eq!(env.server.listen(listener, 1), Err(error));
    }
}

/// An IPv6 wildcard, and an id on an IPv4 address of its port. The first is told to take IPv4 too only after they share
/// the port.
fn two_families(env: &mut Env, v4_addr: &str, v6_is_newer: bool) -> [IdKey; 2] {
    let [v4, v6] = [0; 2].map(|_| env.server.id(env.cs));
    env.server.set(v6, CmOption::AfOnly(true)).unwrap();
    let mut bound = [(v4, v4_addr), (v6, "[::]:7")];
    bound.rotate_left(usize::from(!v6_is_newer));
    for (id, addr) in bound {
        env.server.bind(id, addr).unwrap();
    }
    env.server.set(v6, CmOption::AfOnly(false)).unwrap();
    env.server.listen(v6, 1).unwrap();
    [v4, v6]
}

#[test]
fn the_newest_listener_that_takes_a_request_gets_it() {
    for v6_is_newer in [true, false] {
        let mut env = Env::new();
        let [v4, v6] = two_families(&mut env, "0.0.0.0:7", v6_is_newer);
        env.server.listen(v4, 1).unwrap();
        env.requested_on(if v6_is_newer { v6 } else { v4 });
    }
}

/// The kernel chooses an id by its address, and looks only then whether it listens (`cma_find_listener`,
/// `cma_ib_req_handler`).
#[test]
fn an_id_that_does_not_listen_hides_an_older_listener() {
    let mut env = Env::new();
    two_families(&mut env, "10.0.0.2:7", false);
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(c, &[]);
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
    let mut env = Env::new();
    let [_, v6] = two_families(&mut env, "10.0.0.2:7", true);
    env.requested_on(v6);
}

#[test]
fn an_ipv6_wildcard_takes_ipv4_too() {
    let mut env = Env::new();
    let l = env.server.listener(env.cs, "[::]:7");
    let (_, _) = env.requested_on(l);
}

/// The ACK timeouts of the QPs of a connection, whose client sets `path` before the route, and `own` after it.
fn timeouts_of_qps(flavour: Flavour, path: Option<u8>, own: Option<u8>, server: Option<u8>) -> [Option<u8>; 2] {
    let mut env = Env::with(Config { flavour, ..Config::default() });
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let set = |side: &mut Side, id, value: Option<u8>| {
        if let Some(value) = value {
            side.set(id, CmOption::AckTimeout(value)).unwrap();
        }
    };
    let c = env.client.id(env.cc);
    set(&mut env.client, c, path);
    env.client.resolve_addr(c, Some("10.0.0.1:0"), "10.0.0.2:7", 100).unwrap();
    env.client.next(env.cc).is(c, CmEvent::AddrResolved, 0);
    env.client.routed(c, env.cc);
    let of_client = env.client.qp(c);
    env.connect(c, &[]);
    set(&mut env.client, c, own);
    let s = env.server.requested(env.cs, listener);
    set(&mut env.server, s, server);
    let of_server = env.server.qp(s);
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::Established, 0);
    [of_client, of_server].map(|equipment| equipment.qp.attrs().unwrap().timeout.map(|timeout| timeout.code()))
}

#[test]
fn a_qp_has_the_ack_timeout_of_its_id_or_of_the_path() {
    for (flavour, usual) in [(Flavour::Linux6_1, 19), (Flavour::Linux6_12, 17)] {
        let of = |path, own, server| timeouts_of_qps(flavour, path, own, server).map(Option::unwrap);
        assert_eq!(of(None, None, None), [usual, usual]);
        // It reaches the peer by the route, with the delay of the device.
        assert_eq!(of(Some(14), None, None), [14, 16]);
        assert_eq!(of(Some(22), Some(3), Some(4)), [3, 4]);
        // 0 is unset for a route, and no timeout for a QP.
        assert_eq!(of(Some(0), None, None), [0, usual]);
    }
}

#[test]
fn an_ack_timeout_of_more_than_5_bits_stops_the_qp() {
    let mut env = Env::new();
    let (_, c, s) = env.requested();
    let _qps = (env.client.qp(c), env.server.qp(s));
    env.server.set(s, CmOption::AckTimeout(32)).unwrap();
    let cp = env.cp();
    assert_eq!(env.server.accept(s, cp, &[]), EINVAL);

    let mut env = Env::new();
    let (_, c, s) = env.requested();
    let _qp = env.client.qp(c);
    env.client.set(c, CmOption::AckTimeout(32)).unwrap();
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -22);
}

/// The time of a client's unanswered disconnect, of its time wait, and of the server's time wait.
fn spans(flavour: Flavour, ack_timeout: Option<u8>) -> (Duration, Duration, Duration) {
    let mut env = Env::with(Config { flavour, ..Config::default() });
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.id(env.cc);
    if let Some(value) = ack_timeout {
        env.client.set(c, CmOption::AckTimeout(value)).unwrap();
    }
    env.client.resolve_addr(c, Some("10.0.0.1:0"), "10.0.0.2:7", 100).unwrap();
    env.client.next(env.cc).is(c, CmEvent::AddrResolved, 0);
    env.client.routed(c, env.cc);
    // Too late: the path has got its life time from the route.
    env.client.set(c, CmOption::AckTimeout(1)).unwrap();
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    env.accept(s, &[]);
    env.establish(c, s);
    env.client.disconnect(c).unwrap();
    let (seen, given_up) = env.client.next_timed(env.cc);
    seen.is(c, CmEvent::Disconnected, -110);
    let (seen, client) = env.client.next_timed(env.cc);
    seen.is(c, CmEvent::TimewaitExit, 0);
    env.server.next(env.cs).is(s, CmEvent::Disconnected, 0);
    env.server.disconnect(s).unwrap();
    let (seen, server) = env.server.next_timed(env.cs);
    seen.is(s, CmEvent::TimewaitExit, 0);
    (given_up, client, server)
}

#[test]
fn an_ack_timeout_changes_both_sides_timers() {
    let ms = Duration::from_millis;
    assert_eq!(spans(Flavour::Linux6_12, None), (ms(16 * 4608), ms(512), ms(512)));
    assert_eq!(spans(Flavour::Linux6_1, None), (ms(16 * 6144), ms(2048), ms(2048)));
    // 0 is the same as unset.
    assert_eq!(spans(Flavour::Linux6_1, Some(0)), (ms(16 * 6144), ms(2048), ms(2048)));
    for flavour in [Flavour::Linux6_1, Flavour::Linux6_12] {
        // The ACK delay of the devices makes short time waits longer, and not the retransmissions.
        for (value, life_time, wait) in
            [(1, 1, 128), (13, 16, 128), (14, 32, 256), (15, 64, 256), (16, 128, 512), (18, 512, 1024)]
        {
            assert_eq!(spans(flavour, Some(value)), (ms(16 * (4096 + 2 * life_time)), ms(wait), ms(wait)), "{value}");
        }
    }
}

#[test]
fn the_largest_backlog_and_depths_are_the_hosts() {
    let config = Config { max_backlog: 1, max_responder_resources: 4, max_initiator_depth: 2, ..Config::default() };
    let mut env = Env::with(config);
    let l = env.server.bound(env.cs, "10.0.0.2:7");
    env.server.listen(l, 2).unwrap();
    let [first, second] = [0; 2].map(|_| env.client.resolved(env.cc, "10.0.0.2:7"));
    let cp = env.cp();
    let deep = ConnParam { initiator_depth: 3, ..cp };
    assert_eq!(env.client.connect(first, deep, &[]), EINVAL);
    let most = ConnParam { responder_resources: 255, initiator_depth: 255, ..cp };
    env.client.connect(first, most, &[]).unwrap();
    env.connect(second, &[]);
    env.fabric.advance_by(SECOND);
    let seen = env.server.next(env.cs);
    assert_eq!((seen.param.responder_resources, seen.param.initiator_depth), (2, 4));
    env.server.quiet(env.cs, SECOND);
    assert_eq!(env.fabric.counters().backlog_full, 1);
}

#[test]
fn an_ipv4_wildcard_takes_no_ipv6() {
    let fabric = cmid_sim::Fabric::new(Config::default());
    let mut side = Side::new(&fabric.host(&[ip("fd00::1"), ip("10.0.0.1")]));
    let on = side.channel();
    side.listener(on, "0.0.0.0:7");
    let c = side.resolved(on, "[fd00::1]:7");
    side.connect(c, ConnParam::default(), &[]).unwrap();
    side.next(on).is(c, CmEvent::Rejected, 28);
}
