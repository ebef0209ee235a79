//! Datagram ids: lookups (SIDR) instead of connections.

use std::time::Duration;

use cmid_proto::{Call, CmEvent, CmOption, Datagram, Errno, IdKey, PortSpace, ReceivedParam};
use cmid_sim::{Config, QpState};

use crate::common::{EINVAL, Lab, SECOND, Seen};

const QKEY: u32 = 0x0123_4567;

impl Lab {
    /// A client of a datagram service that has looked it up, and the request at the listener.
    #[track_caller]
    pub(crate) fn looked_up(&mut self, listener: IdKey) -> (IdKey, IdKey) {
        let client = self.client.resolved_in(PortSpace::Udp, self.cc, "10.0.0.2:7");
        let param = self.cp();
        self.client.connect(client, param, b"who").unwrap();
        let seen = self.server.next(self.cs);
        assert_eq!((seen.kind, seen.status, seen.listener), (CmEvent::ConnectRequest, 0, Some(listener)));
        (client, seen.carries(180, b"who").id)
    }

    pub(crate) fn udp_listener(&mut self) -> IdKey {
        self.server.listener_in(PortSpace::Udp, self.cs, "10.0.0.2:7")
    }
}

impl Seen {
    /// A lookup that found nothing: the status of the answer.
    #[track_caller]
    fn refused(self, id: IdKey, status: i32, begins: &[u8]) {
        let seen = self.is(id, CmEvent::Unreachable, status).carries(136, begins);
        assert_eq!((seen.datagram, seen.param), (None, ReceivedParam::default()));
    }
}

#[test]
fn row_70_nobody_listens() {
    let mut lab = Lab::new();
    // A listener of another port space is none.
    lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let qp = lab.client.qp(c);
    assert_eq!(qp.qp.state(), Ok(QpState::Rts));
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    let (seen, waited) = lab.client.next_timed(lab.cc);
    seen.refused(c, 1, &[]);
    assert!(waited < Duration::from_millis(1));
    assert_eq!(qp.qp.state(), Ok(QpState::Rts));
    // Failed is failed.
    assert_eq!(lab.client.connect(c, cp, &[]), EINVAL);
    lab.client.quiet(lab.cc, SECOND * 100);
    lab.client.destroy(c).unwrap();
    assert_eq!((lab.fabric.next_due(), lab.fabric.counters().stalls), (None, 0));
}

#[test]
fn the_type_of_service_that_a_route_was_found_with_is_the_class_of_the_way() {
    let mut lab = Lab::new();
    lab.udp_listener();
    let id = lab.client.id_in(PortSpace::Udp, lab.cc);
    lab.client.resolve_addr(id, None, "10.0.0.2:7", 2000).unwrap();
    lab.client.next(lab.cc).is(id, CmEvent::AddrResolved, 0);
    lab.client.set(id, CmOption::Tos(66)).unwrap();
    lab.client.resolve_route(id).unwrap();
    lab.client.next(lab.cc).is(id, CmEvent::RouteResolved, 0);
    lab.client.set(id, CmOption::Tos(5)).unwrap();
    let (param, answer) = (lab.cp(), lab.cp());
    lab.client.connect(id, param, &[]).unwrap();
    let child = lab.server.next(lab.cs).id;
    lab.server.accept(child, answer, &[]).unwrap();
    let datagram = lab.client.next(lab.cc).is(id, CmEvent::Established, 0).datagram;
    let class = datagram.and_then(|datagram| datagram.path.grh).map(|route| route.traffic_class);
    assert_eq!(class, Some(66));
}

#[test]
fn a_listener_on_another_address_is_a_refusal() {
    let mut lab = Lab::new();
    lab.server.listener_in(PortSpace::Udp, lab.cs, "10.0.0.1:7");
    let c = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.client.next(lab.cc).refused(c, 2, &[]);
}

#[test]
fn row_71_private_data_and_reject() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let c = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    assert_eq!(lab.client.connect(c, cp, &[1; 181]), EINVAL);
    lab.client.connect(c, cp, &[1; 180]).unwrap();
    let request = lab.server.next(lab.cs).carries(180, &[1; 180]);
    assert_eq!((request.kind, request.listener), (CmEvent::ConnectRequest, Some(listener)));
    assert_eq!((request.param, request.datagram), (ReceivedParam::default(), None));
    assert_eq!(lab.server.reject(request.id, &[2; 137]), EINVAL);
    lab.client.quiet(lab.cc, SECOND);
    lab.server.reject(request.id, &[2; 136]).unwrap();
    lab.client.next(lab.cc).refused(c, 2, &[2; 136]);
    assert_eq!(lab.server.reject(request.id, &[]), EINVAL);
    lab.server.quiet(lab.cs, SECOND * 100);
}

#[test]
fn row_72_accept() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let (c, s) = lab.looked_up(listener);
    let cp = lab.cp();
    assert_eq!(lab.server.accept(s, cp, &[3; 137]), EINVAL);
    lab.client.next(lab.cc).refused(c, 2, &[]);

    let (c, s) = lab.looked_up(listener);
    let (c_qp, s_qp) = (lab.client.qp(c), lab.server.qp(s));
    assert_eq!((c_qp.qp.state(), s_qp.qp.state()), (Ok(QpState::Rts), Ok(QpState::Rts)));
    lab.server.accept(s, cp, &[3; 136]).unwrap();
    let seen = lab.client.next(lab.cc).is(c, CmEvent::Established, 0).carries(136, &[3; 136]);
    assert_eq!(seen.param, ReceivedParam::default());
    let Some(Datagram { qp_num, qkey, path }) = seen.datagram else { panic!("{seen:?}") };
    assert_eq!((qp_num, qkey, path.port_num), (s_qp.qp.num(), QKEY, 1));
    let to = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    assert_eq!(path.grh.map(|grh| (grh.dgid, grh.sgid_index, grh.hop_limit)), Some((to, 0, 64)));
    lab.server.quiet(lab.cs, SECOND * 100);
    assert_eq!(lab.server.accept(s, cp, &[]), EINVAL);
    assert_eq!(s_qp.qp.state(), Ok(QpState::Err));
    lab.client.quiet(lab.cc, SECOND);
    assert_eq!(lab.client.disconnect(c), Ok(()));
    assert_eq!(lab.server.disconnect(s), Ok(()));
    assert_eq!(c_qp.qp.state(), Ok(QpState::Err));
    lab.client.quiet(lab.cc, SECOND * 100);
    lab.server.quiet(lab.cs, SECOND);
}

#[test]
fn row_73_a_full_backlog_and_the_ends_of_either_side() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    assert_eq!(lab.server.listen(listener, 1), EINVAL);
    let first = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let second = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(first, cp, &[]).unwrap();
    lab.client.connect(second, cp, &[]).unwrap();
    let (seen, waited) = lab.client.next_timed(lab.cc);
    seen.refused(second, 2, &[]);
    assert!(waited < Duration::from_millis(1));
    // The listener goes with its unread request.
    lab.server.destroy(listener).unwrap();
    lab.client.next(lab.cc).refused(first, 2, &[]);
    lab.server.quiet(lab.cs, SECOND);
    // The new id goes.
    let listener = lab.udp_listener();
    let (c, s) = lab.looked_up(listener);
    lab.server.destroy(s).unwrap();
    lab.client.next(lab.cc).refused(c, 2, &[]);
    // The listener goes, the request that was read stays.
    let (c, s) = lab.looked_up(listener);
    lab.server.destroy(listener).unwrap();
    lab.server.accept(s, cp, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Established, 0);
}

#[test]
fn row_74_a_silent_server() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let (c, s) = lab.looked_up(listener);
    let (seen, waited) = lab.client.next_timed(lab.cc);
    seen.is(c, CmEvent::Unreachable, -110).carries(0, &[]);
    assert!((Duration::from_secs(62)..Duration::from_secs(75)).contains(&waited), "{waited:?}");
    // The duplicates were none of the application's business.
    lab.server.quiet(lab.cs, SECOND);
    let cp = lab.cp();
    assert_eq!(lab.server.accept(s, cp, &[]), Ok(()));
    lab.client.quiet(lab.cc, SECOND * 100);
    lab.server.quiet(lab.cs, SECOND * 100);
}

#[test]
fn establish_answers_without_a_qp() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let (c, s) = lab.looked_up(listener);
    assert_eq!(lab.server.establish(s), Ok(()));
    let seen = lab.client.next(lab.cc).is(c, CmEvent::Established, 0).carries(136, &[]);
    assert_eq!(seen.datagram.map(|found| (found.qp_num, found.qkey)), Some((0, QKEY)));
    let cp = lab.cp();
    assert_eq!(lab.server.accept(s, cp, &[]), EINVAL);
    // It was not accepted, so nothing is delivered for it.
    lab.host.fail_over();
    lab.server.next(lab.cs).is(listener, CmEvent::AddrChange, 0);
    lab.server.quiet(lab.cs, SECOND);
}

#[test]
fn a_client_that_waits_can_do_nothing_but_go() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let (c, s) = lab.looked_up(listener);
    let cp = lab.cp();
    assert_eq!(lab.client.accept(c, cp, &[]), EINVAL);
    assert_eq!(lab.client.establish(c), EINVAL);
    assert_eq!(lab.client.reject(c, &[]), EINVAL);
    assert_eq!(lab.client.notify(c), EINVAL);
    assert_eq!(lab.client.disconnect(c), Ok(()));
    assert_eq!(lab.server.notify(s), EINVAL);
    assert_eq!(lab.server.disconnect(s), Ok(()));
    // Nobody is told that it goes.
    lab.client.destroy(c).unwrap();
    lab.server.accept(s, cp, &[]).unwrap();
    lab.server.quiet(lab.cs, SECOND * 100);
    assert_eq!(lab.fabric.counters().stalls, 0);
}

#[test]
fn a_lookup_survives_losses() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    lab.fabric.set_loss(1.0);
    let c = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.server.quiet(lab.cs, SECOND);
    lab.fabric.set_loss(0.0);
    let (seen, waited) = lab.server.next_timed(lab.cs);
    assert_eq!(seen.listener, Some(listener));
    assert!(waited > SECOND * 3 && waited < SECOND * 4, "4096 ms after the first try: {waited:?}");
    // The answer is lost: the next try is a request of its own.
    lab.fabric.set_loss(1.0);
    lab.server.accept(seen.id, cp, &[]).unwrap();
    lab.server.quiet(lab.cs, SECOND);
    lab.fabric.set_loss(0.0);
    let again = lab.server.next(lab.cs);
    assert!(again.id != seen.id && again.listener == Some(listener));
    lab.server.accept(again.id, cp, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Established, 0);
}

#[test]
fn depths_are_not_checked_and_ports_are_separate() {
    let mut lab = Lab::with(Config { max_initiator_depth: 4, ..Config::default() });
    lab.server.listener(lab.cs, "10.0.0.2:7");
    lab.udp_listener();
    let c = lab.client.resolved_in(PortSpace::Udp, lab.cc, "10.0.0.2:7");
    let deep = cmid_proto::ConnParam { initiator_depth: 200, ..lab.cp() };
    assert_eq!(lab.client.connect(c, deep, &[]), Ok(()));
}

#[test]
fn row_39_ipoib_needs_infiniband() {
    let mut lab = Lab::new();
    let id = lab.client.id_in(PortSpace::Ipoib, lab.cc);
    assert_eq!(lab.client.bind(id, "10.0.0.1:0"), EINVAL);
    assert_eq!(lab.client.bind(id, "0.0.0.0:0"), Ok(()));
    lab.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    lab.client.next(lab.cc).is(id, CmEvent::AddrError, -22);
}

#[test]
fn a_qp_may_come_at_any_time() {
    let mut lab = Lab::new();
    let listener = lab.udp_listener();
    let qp = lab.server.qp(listener);
    assert_eq!(qp.qp.state(), Ok(QpState::Rts));
    let (c, _) = lab.looked_up(listener);
    assert_eq!(lab.client.qp(c).qp.state(), Ok(QpState::Rts));
    let bare = lab.client.id_in(PortSpace::Udp, lab.cc);
    assert_eq!(lab.client.device.alloc_pd(bare).map(drop), Err(Errno::ENODEV));
    let cp = lab.cp();
    assert_eq!(lab.client.connect(bare, cp, &[]), EINVAL);
    assert_eq!(lab.client.call(Call::Disconnect { id: bare }), EINVAL);
}
