//! Section "refusals" of the conformance scenarios.

use cmid_proto::{CmEvent, ConnParam};
use cmid_sim::QpState;

use crate::common::{EINVAL, Lab, SECOND};

#[test]
fn row_11_nobody_listens() {
    let mut lab = Lab::new();
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 8).carries(148, &[]);
    lab.client.quiet(lab.cc, SECOND * 3);
    lab.client.destroy(c).unwrap();
    assert_eq!(lab.fabric.next_due(), None);
}

#[test]
fn row_12_a_listener_on_another_address() {
    let mut lab = Lab::new();
    lab.server.listener(lab.cs, "10.0.0.1:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28).carries(148, &[]);
}

#[test]
fn wildcard_and_loopback_listeners_take_requests_to_every_address() {
    for wildcard in ["0.0.0.0:7", "127.0.0.1:7"] {
        let mut lab = Lab::new();
        let l = lab.server.listener(lab.cs, wildcard);
        for dst in ["10.0.0.1:7", "10.0.0.2:7"] {
            let c = lab.client.resolved(lab.cc, dst);
            let cp = lab.cp();
            lab.client.connect(c, cp, &[]).unwrap();
            let s = lab.server.requested(lab.cs, l);
            assert_eq!(lab.server.local(s), dst.parse().unwrap());
        }
    }
}

#[test]
fn row_13_reject() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let c_qp = lab.client.qp(c);
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    let s = lab.server.requested(lab.cs, listener);
    assert_eq!(lab.server.reject(s, &[1; 149]), EINVAL);
    lab.client.quiet(lab.cc, SECOND);
    lab.server.reject(s, &[7; 20]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28).carries(148, &[7; 20]);
    assert_eq!(c_qp.qp.state(), Ok(QpState::Err));
    assert_eq!(lab.server.reject(s, &[]), EINVAL);
    assert_eq!(lab.server.accept(s, cp, &[]), EINVAL);
    lab.client.quiet(lab.cc, SECOND * 3);
    lab.server.quiet(lab.cs, SECOND);
    assert_eq!(lab.client.connect(c, cp, &[]), EINVAL);
    assert_eq!(lab.client.resolve_route(c), EINVAL);
    assert_eq!(lab.client.resolve_addr(c, None, "10.0.0.2:7", 100), EINVAL);
    assert_eq!(lab.client.bind(c, "10.0.0.1:0"), EINVAL);
    assert_eq!(lab.client.listen(c, 1), EINVAL);
    assert_eq!(lab.client.disconnect(c), Ok(()));
    lab.client.quiet(lab.cc, SECOND);
    lab.client.destroy(c).unwrap();
    lab.server.destroy(s).unwrap();
    assert_eq!((lab.fabric.next_due(), lab.fabric.counters().stalls), (None, 0));
}

#[test]
fn row_15_destroying_the_new_id_rejects() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    lab.server.destroy(s).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn row_16_private_data_limits() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    assert_eq!(lab.client.connect(c, cp, &[1; 57]), EINVAL);
    assert_eq!(lab.client.connect(c, cp, &[1; 220]), EINVAL);
    lab.client.connect(c, cp, &[1; 56]).unwrap();
    let request = lab.server.next(lab.cs).carries(56, &[1; 56]);
    let param = lab.cp();
    assert_eq!(lab.server.accept(request.id, param, &[2; 197]), EINVAL);
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
    assert_eq!(lab.server.accept(request.id, param, &[2; 10]), EINVAL);
    lab.server.quiet(lab.cs, SECOND);
    let (c, s) = lab.requested_on(listener);
    let param = lab.cp();
    lab.server.accept(s, param, &[3; 196]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0).carries(196, &[3; 196]);
}

#[test]
fn row_17_a_second_accept_kills_the_connection_and_stalls_destroy() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    assert_eq!(lab.server.accept(s, param, &[]), EINVAL);
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
    lab.server.quiet(lab.cs, SECOND);
    lab.server.destroy(s).unwrap();
    assert_eq!(lab.fabric.counters().stalls, 1);
}

#[test]
fn row_19_a_reject_before_the_answer_stalls_destroy() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.client.reject(c, &[]).unwrap();
    lab.client.quiet(lab.cc, SECOND);
    lab.server.requested(lab.cs, listener);
    lab.client.destroy(c).unwrap();
    assert_eq!(lab.fabric.counters().stalls, 1);
}

#[test]
fn row_20_a_late_reject_stalls_destroy() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.server.reject(s, b"late").unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28).carries(148, b"late");
    assert_eq!(lab.client.establish(c), EINVAL);
    lab.server.destroy(s).unwrap();
    assert_eq!(lab.fabric.counters().stalls, 1);
}

#[test]
fn row_21_the_client_rejects_the_answer() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.client.reject(c, b"no").unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Rejected, 28).carries(148, b"no");
    assert_eq!(lab.client.reject(c, b"no"), EINVAL);
    lab.client.destroy(c).unwrap();
    lab.server.destroy(s).unwrap();
    assert_eq!(lab.fabric.counters().stalls, 0);
}

#[test]
fn row_22_depths_beyond_the_device() {
    let mut lab = Lab::new();
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    assert_eq!(lab.client.connect(c, ConnParam { responder_resources: 129, ..cp }, &[]), EINVAL);
    assert_eq!(lab.client.connect(c, ConnParam { initiator_depth: 254, ..cp }, &[]), EINVAL);
    lab.client.connect(c, ConnParam { responder_resources: 128, initiator_depth: 255, ..cp }, &[]).unwrap();
}

#[test]
fn calls_that_crash_librdmacm_are_invalid() {
    let mut lab = Lab::new();
    let bare = lab.client.id(lab.cc);
    let wild = lab.client.id(lab.cc);
    lab.client.bind(wild, "0.0.0.0:0").unwrap();
    let cp = lab.cp();
    for id in [bare, wild] {
        assert_eq!(lab.client.connect(id, cp, &[]), EINVAL);
        assert_eq!(lab.client.accept(id, cp, &[]), EINVAL);
        assert_eq!(lab.client.resolve_route(id), EINVAL);
        assert_eq!(lab.client.disconnect(id), EINVAL);
        assert_eq!(lab.client.establish(id), EINVAL);
        assert_eq!(lab.client.reject(id, &[]), EINVAL);
    }
    // The library learns the device when the event is read, not when it is queued.
    lab.client.resolve_addr(bare, None, "10.0.0.2:7", 100).unwrap();
    lab.fabric.advance_by(SECOND);
    assert_eq!(lab.client.resolve_route(bare), EINVAL);
    lab.client.next(lab.cc).is(bare, CmEvent::AddrResolved, 0);
    lab.client.resolve_route(bare).unwrap();
}

#[test]
fn disconnect_on_a_listener_depends_on_its_address() {
    let mut lab = Lab::new();
    let bound = lab.server.listener(lab.cs, "10.0.0.2:7");
    let wild = lab.server.listener(lab.cs, "0.0.0.0:8");
    assert_eq!(lab.server.disconnect(bound), Ok(()));
    assert_eq!(lab.server.disconnect(wild), EINVAL);
}

#[test]
fn establish_on_an_unanswered_request_rejects_it() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    assert_eq!(lab.server.establish(s), EINVAL);
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn a_failing_accept_breaks_the_qp() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let s_qp = lab.server.qp(s);
    let param = lab.cp();
    assert_eq!(lab.server.accept(s, param, &[0; 197]), EINVAL);
    assert_eq!(s_qp.qp.state(), Ok(QpState::Err));
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn a_second_accept_with_a_qp_fails_before_anything_is_sent() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let s_qp = lab.server.qp(s);
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    assert_eq!(lab.server.accept(s, param, &[]), EINVAL);
    assert_eq!(s_qp.qp.state(), Ok(QpState::Rts));
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.client.establish(c).unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Established, 0);
}
