//! Section "normal life" of the conformance scenarios.

use crate::common::{Env, SECOND, Side, ip};
use cmid_proto::{Call, CmEvent, ConnParam, PortSpace};
use cmid_sim::Config;

#[test]
fn time_waits_of_one_tick_end_with_the_newest() {
    let orders = [(0, [0, 1, 2]), (0b01, [1, 0, 2]), (0b10, [0, 2, 1]), (0b11, [2, 1, 0])];
    // The second id may be destroyed before the third one's time wait begins.
    for ((time_waits_of_one_tick, order), goes) in orders.into_iter().flat_map(|order| [(order, false), (order, true)])
    {
        let mut env = Env::with(Config { time_waits_of_one_tick, ..Config::default() });
        let listener = env.server.listener(env.cs, "10.0.0.2:7");
        let mut connected = || {
            let (client, param) = (env.client.resolved(env.cc, "10.0.0.2:7"), env.cp());
            env.client.connect(client, param, &[]).unwrap();
            let (new, param) = (env.server.requested(env.cs, listener), env.cp());
            env.server.accept(new, param, &[]).unwrap();
            env.establish(client, new);
            (client, new)
        };
        let pairs = [connected(), connected(), connected()];
        for (client, new) in pairs {
            env.server.destroy(new).unwrap();
            env.client.next(env.cc).is(client, CmEvent::Disconnected, 0);
            env.client.disconnect(client).unwrap();
            if goes && client == pairs[1].0 {
                env.client.destroy(client).unwrap();
            }
        }
        assert_eq!(env.fabric.counters().time_waits_in_turn, 2);
        for at in order.into_iter().filter(|&at| !goes || at != 1) {
            env.client.next(env.cc).is(pairs[at].0, CmEvent::TimewaitExit, 0);
        }
    }
}

#[test]
fn crossing_disconnects_leave_nobody_in_time_wait() {
    let mut env = Env::new();
    let (_, c, s) = env.established();
    env.client.disconnect(c).unwrap();
    env.server.disconnect(s).unwrap();
    env.client.next(env.cc).is(c, CmEvent::Disconnected, 0);
    env.server.next(env.cs).is(s, CmEvent::Disconnected, 0);
    env.client.quiet(env.cc, SECOND * 100);
    env.server.quiet(env.cs, SECOND);
    env.client.disconnect(c).unwrap();
    env.client.next(env.cc).is(c, CmEvent::TimewaitExit, 0);
    env.server.next(env.cs).is(s, CmEvent::TimewaitExit, 0);
}

#[test]
fn the_ib_port_space_behaves_alike_but_checks_no_depths() {
    let mut env = Env::new();
    let (l, c) = (env.server.fresh_id(), env.client.fresh_id());
    let port_space = PortSpace::Ib;
    env.server.call(Call::CreateId { id: l, channel: env.cs, port_space }).unwrap();
    env.client.call(Call::CreateId { id: c, channel: env.cc, port_space }).unwrap();
    env.server.bind(l, "10.0.0.2:7").unwrap();
    env.server.listen(l, 1).unwrap();
    env.client.resolve_addr(c, None, "10.0.0.2:7", 100).unwrap();
    env.client.next(env.cc).is(c, CmEvent::AddrResolved, 0);
    env.client.routed(c, env.cc);
    let deep = ConnParam { responder_resources: 200, ..env.cp() };
    env.client.connect(c, deep, &[]).unwrap();
    let request = env.server.next(env.cs);
    assert_eq!((request.kind, request.param.initiator_depth), (CmEvent::ConnectRequest, 200));
}

#[test]
fn ipv6_connects_too() {
    let fabric = cmid_sim::Fabric::new(Config::default());
    let (one, two) = (fabric.host(&[ip("fd00::1")]), fabric.host(&[ip("fd00::2")]));
    let (mut server, mut client) = (Side::new(&two), Side::new(&one));
    let (cs, cc) = (server.channel(), client.channel());
    let l = server.listener(cs, "[::]:7");
    let c = client.resolved(cc, "[fd00::2]:7");
    client.connect(c, ConnParam { qp_num: 1, ..ConnParam::default() }, &[]).unwrap();
    let s = server.requested(cs, l);
    // On two hosts both sides may use the same QP number.
    server.accept(s, ConnParam { qp_num: 1, ..ConnParam::default() }, &[]).unwrap();
    client.next(cc).is(c, CmEvent::ConnectResponse, 0);
    client.establish(c).unwrap();
    server.next(cs).is(s, CmEvent::Established, 0);
    assert_eq!(server.local(s), "[fd00::2]:7".parse().unwrap());
    assert_eq!(client.local(c).ip(), ip("fd00::1"));
}
