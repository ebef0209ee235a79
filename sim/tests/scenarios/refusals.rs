//! Section "refusals" of the conformance scenarios.

use cmid_proto::datapath::QueuePair;
use cmid_proto::{CmEvent, IdKey};
use cmid_sim::QpState;

use crate::common::{EINVAL, Env, SECOND};

/// A client that waits for an answer, and the id of its request.
#[track_caller]
pub(crate) fn requested() -> (Env, IdKey, IdKey) {
    let mut env = Env::new();
    let (_, client, new) = env.requested();
    (env, client, new)
}

#[test]
fn wildcard_and_loopback_listeners_take_requests_to_every_address() {
    for wildcard in ["0.0.0.0:7", "127.0.0.1:7"] {
        let mut env = Env::new();
        let l = env.server.listener(env.cs, wildcard);
        for dst in ["10.0.0.1:7", "10.0.0.2:7"] {
            let c = env.client.resolved(env.cc, dst);
            env.connect(c, &[]);
            let s = env.server.requested(env.cs, l);
            assert_eq!(env.server.local(s), dst.parse().unwrap());
        }
    }
}

#[test]
fn behaviour_17_a_second_accept_kills_the_connection_and_stalls_destroy() {
    let (mut env, c, s) = requested();
    let param = env.cp();
    env.server.accept(s, param, &[]).unwrap();
    assert_eq!(env.server.accept(s, param, &[]), EINVAL);
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
    env.server.quiet(env.cs, SECOND);
    env.server.destroy(s).unwrap();
    assert_eq!(env.fabric.counters().stalls, 1);
}

#[test]
fn behaviour_19_a_reject_before_the_answer_stalls_destroy() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(c, &[]);
    env.client.reject(c, &[]).unwrap();
    env.client.quiet(env.cc, SECOND);
    env.server.requested(env.cs, listener);
    env.client.destroy(c).unwrap();
    assert_eq!(env.fabric.counters().stalls, 1);
}

#[test]
fn behaviour_20_a_late_reject_stalls_destroy() {
    let (mut env, c, s) = requested();
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    env.server.reject(s, b"late").unwrap();
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28).carries(148, b"late");
    assert_eq!(env.client.establish(c), EINVAL);
    env.server.destroy(s).unwrap();
    assert_eq!(env.fabric.counters().stalls, 1);
}

#[test]
fn calls_that_crash_librdmacm_are_invalid() {
    let mut env = Env::new();
    let bare = env.client.id(env.cc);
    let wild = env.client.bound(env.cc, "0.0.0.0:0");
    let cp = env.cp();
    for id in [bare, wild] {
        assert_eq!(env.client.connect(id, cp, &[]), EINVAL);
        assert_eq!(env.client.accept(id, cp, &[]), EINVAL);
        assert_eq!(env.client.resolve_route(id), EINVAL);
        assert_eq!(env.client.disconnect(id), EINVAL);
        assert_eq!(env.client.establish(id), EINVAL);
        assert_eq!(env.client.reject(id, &[]), EINVAL);
    }
    // The library sets the device when the event is read, not when it is queued.
    env.client.resolve_addr(bare, None, "10.0.0.2:7", 100).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(env.client.resolve_route(bare), EINVAL);
    env.client.next(env.cc).is(bare, CmEvent::AddrResolved, 0);
    env.client.resolve_route(bare).unwrap();
}

#[test]
fn disconnect_on_a_listener_depends_on_its_address() {
    let mut env = Env::new();
    let bound = env.server.listener(env.cs, "10.0.0.2:7");
    let wild = env.server.listener(env.cs, "0.0.0.0:8");
    assert_eq!(env.server.disconnect(bound), Ok(()));
    assert_eq!(env.server.disconnect(wild), EINVAL);
}

#[test]
fn establish_on_an_unanswered_request_rejects_it() {
    let (mut env, c, s) = requested();
    assert_eq!(env.server.establish(s), EINVAL);
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn a_failing_accept_breaks_the_qp() {
    let (mut env, c, s) = requested();
    let s_qp = env.server.qp(s);
    assert_eq!(env.server.accept(s, env.cp(), &[0; 197]), EINVAL);
    assert_eq!(s_qp.qp.state(), Ok(QpState::ERR));
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn a_second_accept_with_a_qp_fails_before_anything_is_sent() {
    let (mut env, c, s) = requested();
    let s_qp = env.server.qp(s);
    let param = env.cp();
    env.server.accept(s, param, &[]).unwrap();
    assert_eq!(env.server.accept(s, param, &[]), EINVAL);
    assert_eq!(s_qp.qp.state(), Ok(QpState::RTS));
    env.establish(c, s);
}
