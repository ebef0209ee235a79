//! Section "vanishing peers and timeouts" of the conformance scenarios.

use std::time::Duration;

use cmid_proto::datapath::QueuePair;
use cmid_proto::{CmEvent, ConnParam};
use cmid_sim::{Config, Flavour, Kind, Latency, QpState, Rule};

use crate::common::{EINVAL, Env, SECOND, Side, ip};
use crate::refusals::requested;

#[test]
fn an_answer_that_comes_after_a_disconnect_finds_the_qp_in_the_error_state() {
    let (mut env, c, s) = requested();
    let qp = env.client.qp(c);
    env.client.disconnect(c).unwrap();
    env.accept(s, &[]);
    // The errno of the QP; the handshake itself could go on.
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -22);
    assert_eq!(qp.qp.state(), Ok(QpState::ERR));
}

/// Runs a scenario on each kernel, with the time between two transmissions of its requests.
fn on_each_kernel(scenario: impl Fn(Flavour, Duration)) {
    scenario(Flavour::Linux6_12, Duration::from_millis(4608));
    scenario(Flavour::Linux6_1, Duration::from_millis(6144));
}

fn lab_of(flavour: Flavour) -> Env {
    Env::with(Config { flavour, ..Config::default() })
}

fn nobody_there(flavour: Flavour, interval: Duration) {
    let mut env = lab_of(flavour);
    // The link address is known, but there is no RDMA device behind it.
    let other = env.fabric.host(&[]);
    other.add_plain_addr(ip("10.0.0.99"));
    let c = env.client.resolved(env.cc, "10.0.0.99:7");
    let c_qp = env.client.qp(c);
    let cp = env.cp();
    env.client.connect(c, cp, &[]).unwrap();
    let (event, waited) = env.client.next_timed(env.cc);
    event.is(c, CmEvent::Unreachable, -110).carries(0, &[]);
    assert_eq!(waited, interval * 16);
    assert_eq!(env.fabric.counters().retransmitted, 15);
    assert_eq!(c_qp.qp.state(), Ok(QpState::INIT));
    assert_eq!(env.client.connect(c, cp, &[]), EINVAL);
}

#[test]
fn behaviour_29_nobody_there() {
    on_each_kernel(nobody_there);
}

fn never_answered(flavour: Flavour, _interval: Duration) {
    let mut env = lab_of(flavour);
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(c, &[]);
    let (event, waited) = env.client.next_timed(env.cc);
    event.is(c, CmEvent::Unreachable, -110);
    assert!((SECOND * 990..SECOND * 1030).contains(&waited), "{waited:?}");
    let s = env.server.requested(env.cs, listener);
    env.accept(s, &[]);
    let (event, waited) = env.server.next_timed(env.cs);
    event.is(s, CmEvent::Unreachable, -110);
    assert!((SECOND * 65..SECOND * 70).contains(&waited), "{waited:?}");
}

#[test]
fn behaviour_30_the_server_never_answers() {
    on_each_kernel(never_answered);
}

fn never_read(flavour: Flavour, _interval: Duration) {
    let mut env = lab_of(flavour);
    let (_, c, s) = env.requested();
    env.accept(s, &[]);
    let (event, waited) = env.server.next_timed(env.cs);
    event.is(s, CmEvent::Unreachable, -110);
    assert!((SECOND * 990..SECOND * 1030).contains(&waited), "{waited:?}");
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    env.client.establish(c).unwrap();
    env.server.quiet(env.cs, SECOND * 100);
    // Half open: only the client is connected.
    env.client.disconnect(c).unwrap();
    env.client.next(env.cc).is(c, CmEvent::Disconnected, -110);
}

#[test]
fn behaviour_31_the_client_never_reads_the_answer() {
    on_each_kernel(never_read);
}

fn disconnect_unanswered(flavour: Flavour, interval: Duration) {
    let mut env = lab_of(flavour);
    let (_, c, s) = env.established();
    env.client.disconnect(c).unwrap();
    env.server.next(env.cs).is(s, CmEvent::Disconnected, 0);
    let (event, waited) = env.client.next_timed(env.cc);
    event.is(c, CmEvent::Disconnected, -110);
    assert!(waited <= interval * 16 && waited > interval * 15, "{waited:?}");
    env.client.next(env.cc).is(c, CmEvent::TimewaitExit, 0);
}

#[test]
fn behaviour_32_a_disconnect_is_never_answered() {
    on_each_kernel(disconnect_unanswered);
}

fn full_backlog(flavour: Flavour, interval: Duration) {
    let mut env = lab_of(flavour);
    let listener = env.server.bound(env.cs, "10.0.0.2:7");
    env.server.listen(listener, 1).unwrap();
    let clients = [(); 3].map(|()| env.client.resolved(env.cc, "10.0.0.2:7"));
    for c in clients {
        env.connect(c, &[]);
    }
    env.fabric.advance_by(SECOND);
    env.server.requested(env.cs, listener);
    let (second, waited) = env.server.next_timed(env.cs);
    assert_eq!(second.kind, CmEvent::ConnectRequest);
    assert_eq!(waited.as_millis(), (interval - SECOND).as_millis());
    // The request was read at once. So the third, which was sent again right after it, found room or waits for its
    // next attempt.
    let (third, waited) = env.server.next_timed(env.cs);
    assert_eq!(third.kind, CmEvent::ConnectRequest);
    assert!(waited <= interval, "{waited:?}");
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn behaviour_33_a_full_backlog_makes_clients_wait() {
    on_each_kernel(full_backlog);
}

#[test]
fn behaviour_33_the_third_waits_twice_if_the_second_is_read_late() {
    let mut env = Env::new();
    let listener = env.server.bound(env.cs, "10.0.0.2:7");
    env.server.listen(listener, 1).unwrap();
    let clients = [(); 3].map(|()| env.client.resolved(env.cc, "10.0.0.2:7"));
    let start = env.fabric.now();
    for c in clients {
        env.connect(c, &[]);
    }
    for (round, seconds) in [(0, 1), (1, 5), (2, 10)] {
        env.fabric.advance_to(start.after(SECOND * seconds));
        assert!(env.server.fetch(env.cs).is_some(), "round {round}");
        assert_eq!(env.server.fetch(env.cs), None, "round {round}");
    }
    assert_eq!(env.fabric.counters().backlog_full, 3);
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn the_same_qp_number_on_both_sides_counts_if_it_is_0_too() {
    let mut env = Env::new();
    let (listener, param) = (env.server.listener(env.cs, "10.0.0.2:7"), ConnParam::default());
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.connect(c, param, &[]).unwrap();
    let s = env.server.requested(env.cs, listener);
    env.server.accept(s, param, &[]).unwrap();
    env.server.next(env.cs).is(s, CmEvent::Rejected, 10);
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn a_server_uses_a_qp_number_again() {
    let mut env = Env::new();
    let far = env.fabric.host(&[ip("10.0.0.3")]);
    let mut server = Side::new(&far);
    let cs = server.channel();
    let l = server.listener(cs, "10.0.0.3:7");
    let connected = |env: &mut Env, server: &mut Side, qp_num| {
        let c = env.client.resolved(env.cc, "10.0.0.3:7");
        env.client.connect(c, env.cp(), &[]).unwrap();
        let s = server.requested(cs, l);
        server.accept(s, ConnParam { qp_num, ..env.cp() }, &[]).unwrap();
        (c, s)
    };
    let (c1, s1) = connected(&mut env, &mut server, 9);
    env.client.next(env.cc).is(c1, CmEvent::ConnectResponse, 0);
    env.client.establish(c1).unwrap();
    server.next(cs).is(s1, CmEvent::Established, 0);
    // The second answer is stale at the client, which causes an event for both connections of the server.
    let (_, s2) = connected(&mut env, &mut server, 9);
    let mut seen = [server.next(cs), server.next(cs)];
    seen.sort_by_key(|event| event.kind.code());
    let [rejected, disconnected] = seen;
    rejected.is(s2, CmEvent::Rejected, 10);
    disconnected.is(s1, CmEvent::Disconnected, 0);
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn a_qp_number_is_free_once_its_connection_is_over() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let param = env.cp();
    let answer = env.cp();
    // Rejected; the id still exists.
    let refused = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.connect(refused, param, &[]).unwrap();
    let s = env.server.requested(env.cs, listener);
    env.server.reject(s, &[]).unwrap();
    env.client.next(env.cc).is(refused, CmEvent::Rejected, 28);
    for _ in 0..2 {
        let c = env.client.resolved(env.cc, "10.0.0.2:7");
        env.client.connect(c, param, &[]).unwrap();
        let s = env.server.requested(env.cs, listener);
        env.server.accept(s, answer, &[]).unwrap();
        env.establish(c, s);
        // In time wait on both sides; the ids still exist.
        env.client.disconnect(c).unwrap();
        env.server.next(env.cs).is(s, CmEvent::Disconnected, 0);
        env.server.disconnect(s).unwrap();
        env.client.next(env.cc).is(c, CmEvent::Disconnected, 0);
        env.server.next(env.cs).is(s, CmEvent::TimewaitExit, 0);
        env.client.next(env.cc).is(c, CmEvent::TimewaitExit, 0);
    }
}

#[test]
fn a_link_that_is_down_takes_nothing_in_and_lets_nothing_out() {
    let mut env = Env::new();
    let far = env.fabric.host(&[ip("10.0.0.3")]);
    let mut server = Side::new(&far);
    let cs = server.channel();
    let l = server.listener(cs, "10.0.0.3:7");
    for down in [&env.host.clone(), &far] {
        let c = env.client.resolved(env.cc, "10.0.0.3:7");
        down.set_link(false);
        env.client.connect(c, env.cp(), &[]).unwrap();
        server.quiet(cs, SECOND * 4);
        down.set_link(true);
        server.requested(cs, l);
    }
}

/// A client that has seen no answer takes only the first one: it does not know the peer's communication id of a
/// later message (`cm_acquire_id`).
#[test]
fn a_client_without_an_answer_does_not_see_the_end_after_it() {
    let mut env = Env::new();
    let (l, _, s) = env.requested();
    let lost = env.fabric.rule(Rule::drop().of(&[Kind::Rep]).nth(1));
    env.accept(s, &[]);
    assert_eq!(lost.count(), 1);
    env.server.destroy(s).unwrap();
    env.client.quiet(env.cc, SECOND * 4);
    // It repeats its request, which is a new one.
    let again = env.server.requested(env.cs, l);
    env.server.reject(again, &[]).unwrap();
    assert_eq!(env.client.next(env.cc).kind, CmEvent::Rejected);
}

#[test]
fn an_answer_that_the_rejection_overtakes_can_still_be_confirmed() {
    let mut env = Env::new();
    let (_, c, s) = env.requested();
    let _slow = env.fabric.rule(Rule::delay(Latency::Fixed(SECOND)).of(&[Kind::Rep]));
    env.accept(s, &[]);
    env.server.destroy(s).unwrap();
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(env.client.establish(c), Ok(()));
    env.client.quiet(env.cc, SECOND * 10);
}

#[test]
fn a_disconnect_after_a_lost_answer_is_answered_at_once() {
    let mut env = Env::new();
    let (_, _, s) = env.requested();
    let _lost = env.fabric.rule(Rule::drop().of(&[Kind::Rep]).nth(1));
    env.accept(s, &[]);
    env.server.notify(s).unwrap();
    env.server.next(env.cs).is(s, CmEvent::Established, 0);
    env.server.disconnect(s).unwrap();
    let (seen, waited) = env.server.next_timed(env.cs);
    seen.is(s, CmEvent::Disconnected, 0);
    assert!(waited < SECOND);
}
