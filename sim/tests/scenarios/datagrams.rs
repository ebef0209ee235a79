//! Datagram ids: lookups (SIDR) instead of connections.

use std::time::Duration;

use cmid_proto::datapath::{DataPath, QueuePair};
use cmid_proto::{Call, CmEvent, CmOption, ConnParam, Errno, IdKey, PortSpace};
use cmid_sim::{Config, QpState};

use crate::common::{EINVAL, Env, SECOND};

const QKEY: u32 = 0x0123_4567;

impl Env {
    /// A client that has looked up a datagram service, and the id of the request at the listener.
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

/// A listener for lookups.
pub(crate) fn udp() -> (Env, IdKey) {
    let mut env = Env::new();
    let listener = env.udp_listener();
    (env, listener)
}

#[test]
fn the_type_of_service_that_a_route_was_found_with_is_the_class_of_the_way() {
    let mut env = Env::new();
    env.udp_listener();
    let id = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.resolve_addr(id, None, "10.0.0.2:7", 2000).unwrap();
    env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
    env.client.set(id, CmOption::Tos(66)).unwrap();
    env.client.routed(id, env.cc);
    env.client.set(id, CmOption::Tos(5)).unwrap();
    env.connect(id, &[]);
    let child = env.server.next(env.cs).id;
    env.accept(child, &[]);
    let datagram = env.client.next(env.cc).is(id, CmEvent::Established, 0).datagram;
    let class = datagram.and_then(|datagram| datagram.path.grh).map(|route| route.traffic_class);
    assert_eq!(class, Some(66));
}

#[test]
fn behaviour_74_a_silent_server() {
    let (mut env, listener) = udp();
    let (c, s) = env.looked_up(listener);
    let (seen, waited) = env.client.next_timed(env.cc);
    seen.is(c, CmEvent::Unreachable, -110).carries(0, &[]);
    assert!((Duration::from_secs(62)..Duration::from_secs(75)).contains(&waited), "{waited:?}");
    // The application gets no event of the duplicates.
    env.server.quiet(env.cs, SECOND);
    assert_eq!(env.server.accept(s, env.cp(), &[]), Ok(()));
    env.client.quiet(env.cc, SECOND * 100);
    env.server.quiet(env.cs, SECOND * 100);
}

#[test]
fn establish_answers_without_a_qp() {
    let (mut env, listener) = udp();
    let (c, s) = env.looked_up(listener);
    assert_eq!(env.server.establish(s), Ok(()));
    let seen = env.client.next(env.cc).is(c, CmEvent::Established, 0).carries(136, &[]);
    assert_eq!(seen.datagram.map(|found| (found.qp_num, found.qkey)), Some((0, QKEY)));
    assert_eq!(env.server.accept(s, env.cp(), &[]), EINVAL);
    // The id was not accepted, so it gets no event.
    env.host.fail_over();
    env.server.next(env.cs).is(listener, CmEvent::AddrChange, 0);
    env.server.quiet(env.cs, SECOND);
}

#[test]
fn a_client_that_waits_can_do_nothing_but_go() {
    let (mut env, listener) = udp();
    let (c, s) = env.looked_up(listener);
    let cp = env.cp();
    assert_eq!(env.client.accept(c, cp, &[]), EINVAL);
    assert_eq!(env.client.establish(c), EINVAL);
    assert_eq!(env.client.reject(c, &[]), EINVAL);
    assert_eq!(env.client.notify(c), EINVAL);
    assert_eq!(env.client.disconnect(c), Ok(()));
    assert_eq!(env.server.notify(s), EINVAL);
    assert_eq!(env.server.reject(s, &[2; 137]), EINVAL);
    assert_eq!(env.server.disconnect(s), Ok(()));
    // The server gets no event of the client's destruction.
    env.client.destroy(c).unwrap();
    env.server.accept(s, cp, &[]).unwrap();
    env.server.quiet(env.cs, SECOND * 100);
    assert_eq!(env.fabric.counters().stalls, 0);
}

#[test]
fn a_lookup_survives_losses() {
    let (mut env, listener) = udp();
    env.fabric.set_loss(1.0);
    let c = env.client.resolved_in(PortSpace::Udp, env.cc, "10.0.0.2:7");
    let cp = env.cp();
    env.client.connect(c, cp, &[]).unwrap();
    env.server.quiet(env.cs, SECOND);
    env.fabric.set_loss(0.0);
    let (seen, waited) = env.server.next_timed(env.cs);
    assert_eq!(seen.listener, Some(listener));
    assert!(waited > SECOND * 3 && waited < SECOND * 4, "4096 ms after the first try: {waited:?}");
    // The answer is lost; the next attempt is a new request.
    env.fabric.set_loss(1.0);
    env.server.accept(seen.id, cp, &[]).unwrap();
    env.server.quiet(env.cs, SECOND);
    env.fabric.set_loss(0.0);
    let again = env.server.next(env.cs);
    assert!(again.id != seen.id && again.listener == Some(listener));
    env.server.accept(again.id, cp, &[]).unwrap();
    env.client.next(env.cc).is(c, CmEvent::Established, 0);
}

#[test]
fn depths_are_not_checked_and_ports_are_separate() {
    let mut env = Env::with(Config { max_initiator_depth: 4, ..Config::default() });
    env.server.listener(env.cs, "10.0.0.2:7");
    env.udp_listener();
    let c = env.client.resolved_in(PortSpace::Udp, env.cc, "10.0.0.2:7");
    let deep = ConnParam { initiator_depth: 200, ..env.cp() };
    assert_eq!(env.client.connect(c, deep, &[]), Ok(()));
}

#[test]
fn a_qp_may_come_at_any_time() {
    let (mut env, listener) = udp();
    let qp = env.server.qp(listener);
    assert_eq!(qp.qp.state(), Ok(QpState::RTS));
    let (c, _) = env.looked_up(listener);
    assert_eq!(env.client.qp(c).qp.state(), Ok(QpState::RTS));
    let bare = env.client.id_in(PortSpace::Udp, env.cc);
    assert_eq!(env.client.device.alloc_pd(bare).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    assert_eq!(env.client.connect(bare, env.cp(), &[]), EINVAL);
    assert_eq!(env.client.call(Call::Disconnect { id: bare }), EINVAL);
}
