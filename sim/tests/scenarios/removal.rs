//! Removal and addition of devices.

use cmid_proto::datapath::{PostReason, SendWr, prelude::*};
use cmid_proto::{Call, ChannelKey, CmEvent, CmOption, ConnParam, Device, Ece, Errno, IdKey, Outcome, PortSpace};
use cmid_sim::{Access, Config, Fabric, Host, WcStatus};

use crate::common::{EINVAL, Env, SECOND, Side, connected, ip, only, why};
use crate::refusals::requested;

const ENXIO: Outcome = Err(Errno::ENXIO);

#[test]
fn behaviour_78_the_device_goes() {
    let (mut env, pair) = connected(Config::default());
    let (l, c, s) = (pair.listener, pair.client, pair.new);
    // A client that waits for an answer, and the id of its request, which is not accepted.
    let (u, n) = env.requested_on(l);
    let b = env.client.bound(env.cc, "10.0.0.1:9");
    let w = env.client.listener(env.cc, "0.0.0.0:8");
    let i = env.client.id(env.cc);
    let other = env.client.channel();
    env.host.remove_device();
    for id in [l, s] {
        env.server.next(env.cs).is(id, CmEvent::DeviceRemoval, 0).carries(0, &[]);
    }
    for id in [c, u, b] {
        env.client.next(env.cc).is(id, CmEvent::DeviceRemoval, 0).carries(0, &[]);
    }
    env.server.quiet(env.cs, SECOND * 200);
    env.client.quiet(env.cc, SECOND);
    assert_eq!(env.fabric.next_due(), None);

    let cp = env.cp();
    for id in [c, b] {
        let side = &mut env.client;
        assert_eq!(side.bind(id, "10.0.0.1:0"), ENXIO);
        assert_eq!(side.resolve_addr(id, None, "10.0.0.2:7", 100), ENXIO);
        assert_eq!(side.resolve_route(id), ENXIO);
        assert_eq!(side.listen(id, 1), ENXIO);
        assert_eq!(side.connect(id, cp, &[]), ENXIO);
        assert_eq!(side.accept(id, cp, &[]), ENXIO);
        assert_eq!(side.reject(id, &[]), ENXIO);
        assert_eq!(side.establish(id), ENXIO);
        assert_eq!(side.disconnect(id), ENXIO);
        assert_eq!(side.notify(id), ENXIO);
        assert_eq!(side.set(id, CmOption::Tos(1)), ENXIO);
        assert_eq!(side.join(id, "239.0.0.1:0", false).map(drop), ENXIO);
        assert_eq!(side.migrate(id, env.cc, other), ENXIO);
    }
    assert_eq!(env.server.accept(n, cp, &[]), ENXIO);
    assert_eq!(env.server.reject(n, &[]), ENXIO);
    assert_eq!(env.client.migrate(w, env.cc, other), Ok(()));
    assert_eq!(env.client.bind(i, "10.0.0.1:9"), Err(Errno::ENODEV));
    for id in [c, u, b, w, i] {
        assert_eq!(env.client.destroy(id), Ok(()));
    }
    for id in [l, s, n] {
        assert_eq!(env.server.destroy(id), Ok(()));
    }
    assert_eq!(env.fabric.counters().stalls, 0);
}

/// The ids of a device are in the order in which they have got it (`_cma_attach_to_dev`).
#[test]
fn ids_are_told_in_the_order_in_which_they_got_the_device() {
    let mut env = Env::new();
    let [first, second, third] = [0; 3].map(|_| env.client.id(env.cc));
    env.client.resolve_addr(first, None, "10.0.0.2:7", 1000).unwrap();
    env.client.bind(third, "10.0.0.1:9").unwrap();
    env.client.bind(second, "10.0.0.1:8").unwrap();
    env.client.next(env.cc).is(first, CmEvent::AddrResolved, 0);
    let order = [third, second, first];
    env.host.fail_over();
    for id in order {
        env.client.next(env.cc).is(id, CmEvent::AddrChange, 0);
    }
    env.host.remove_device();
    for id in order {
        env.client.next(env.cc).is(id, CmEvent::DeviceRemoval, 0);
    }
}

#[test]
fn unread_events_of_a_removed_device() {
    let mut env = Env::new();
    let l = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(c, &[]);
    let [a, r] = [0; 2].map(|_| env.client.id(env.cc));
    for id in [a, r] {
        env.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    }
    env.fabric.advance_by(SECOND);
    // The address event of one id is read, and its route event is unread.
    env.client.next(env.cc).is(a, CmEvent::AddrResolved, 0);
    env.client.resolve_route(a).unwrap();
    env.fabric.advance_by(SECOND);
    env.host.remove_device();
    // The request is swallowed.
    env.server.next(env.cs).is(l, CmEvent::DeviceRemoval, 0);
    assert_eq!(env.server.fetch(env.cs), None);
    assert_eq!(env.fabric.counters().swallowed, 1);
    env.client.next(env.cc).is(r, CmEvent::AddrError, -1);
    env.client.next(env.cc).is(a, CmEvent::RouteError, -1);
    for id in [c, a, r] {
        env.client.next(env.cc).is(id, CmEvent::DeviceRemoval, 0);
    }
    assert_eq!(env.client.fetch(env.cc), None);
}

#[test]
fn an_unread_answer_cannot_be_confirmed_any_more() {
    let (mut env, c, s) = requested();
    let _qp = env.client.qp(c);
    env.accept(s, &[]);
    env.fabric.advance_by(SECOND);
    env.host.remove_device();
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -1);
    env.client.next(env.cc).is(c, CmEvent::DeviceRemoval, 0);
}

#[test]
fn lookups_in_progress_end_with_the_device() {
    let mut env = Env::new();
    let wild = env.client.looks_up(env.cc, "10.0.0.2:7");
    // A loopback destination is on no network: its device is found at once (`cma_resolve_loopback`).
    let looped = env.client.looks_up(env.cc, "127.0.0.1:7");
    let bound = env.client.id(env.cc);
    env.client.resolve_addr(bound, Some("10.0.0.1:0"), "10.0.0.2:7", 100).unwrap();
    env.host.remove_device();
    env.client.next(env.cc).is(looped, CmEvent::DeviceRemoval, 0);
    env.client.next(env.cc).is(bound, CmEvent::DeviceRemoval, 0);
    // The id had no device to lose, and finds none.
    env.client.next(env.cc).is(wild, CmEvent::AddrError, -19);
    env.client.quiet(env.cc, SECOND);
}

#[test]
fn memberships_end_with_the_device() {
    let mut env = Env::new();
    let id = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.bind(id, "10.0.0.1:0").unwrap();
    let _qp = env.client.qp(id);
    let group = env.client.join(id, "239.0.0.1:0", false).unwrap();
    env.fabric.advance_by(SECOND);
    let pending = env.client.join(id, "239.0.0.2:0", false).unwrap();
    env.host.remove_device();
    // The QP cannot be attached any more.
    let seen = env.client.next(env.cc).is(id, CmEvent::MulticastError, -5);
    assert_eq!(seen.group, Some(group));
    env.client.next(env.cc).is(id, CmEvent::DeviceRemoval, 0);
    env.client.quiet(env.cc, SECOND);
    assert_eq!(env.client.leave(id, group, "239.0.0.1:0"), ENXIO);
    assert_eq!(env.client.leave(id, pending, "239.0.0.2:0"), ENXIO);
    assert_eq!(env.client.leave(id, pending, "239.0.0.2:0"), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn qps_are_flushed_and_gone() {
    let (mut env, mut pair) = connected(Config::default());
    let c = &mut pair.client_qp;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = c.pd.register(vec![0; 16], access).unwrap();
    c.qp.post_recv(1, mr.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, mr.sge(0..8))).unwrap();
    env.host.remove_device();
    for (cq, wr_id) in [(&mut c.recv_cq, 1), (&mut c.send_cq, 2)] {
        let done = only(cq);
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::WR_FLUSH_ERR));
    }
    let gone = Err(Errno::EINVAL);
    assert_eq!(c.qp.state().map(drop), gone);
    assert_eq!(why(c.qp.post_recv(3, mr.sge(0..8))), Err(PostReason::Gone));
    assert_eq!(why(c.qp.post_send(SendWr::send(4, mr.sge(0..8)))), Err(PostReason::Gone));
    let remote = mr.remote(0);
    assert_eq!(why(c.qp.post_send(SendWr::write(5, mr.sge(0..8), remote))), Err(PostReason::Gone));
    assert_eq!(env.client.device.alloc_pd(pair.client).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    assert_eq!(env.client.device.destroy_qp(pair.client), Ok(()));
    // Functions that need only the library still work.
    assert!(env.client.device.local_addr(pair.client).is_ok());
    let ece = Ece { vendor_id: 1, options: 2 };
    assert_eq!(env.client.call(Call::SetEce { id: pair.client, ece }), Ok(()));
    env.client.destroy(pair.client).unwrap();
}

/// Two hosts with an established connection between them.
struct Apart {
    fabric: Fabric,
    near: Host,
    far: Host,
    client: Side,
    server: Side,
    cc: ChannelKey,
    cs: ChannelKey,
    listener: IdKey,
    c: IdKey,
    s: IdKey,
}

fn with_qp(qp_num: u32) -> ConnParam {
    ConnParam { qp_num, ..ConnParam::default() }
}

impl Apart {
    fn new() -> Apart {
        let fabric = Fabric::new(Config::default());
        let far = fabric.host(&[ip("10.0.0.2")]);
        let near = fabric.host(&[ip("10.0.0.1")]);
        let (mut client, mut server) = (Side::new(&near), Side::new(&far));
        let (cc, cs) = (client.channel(), server.channel());
        let listener = server.listener(cs, "0.0.0.0:7");
        let c = client.resolved(cc, "10.0.0.2:7");
        client.connect(c, with_qp(5), &[]).unwrap();
        let s = server.requested(cs, listener);
        server.accept(s, with_qp(6), &[]).unwrap();
        client.next(cc).is(c, CmEvent::ConnectResponse, 0);
        client.establish(c).unwrap();
        server.next(cs).is(s, CmEvent::Established, 0);
        Apart { fabric, near, far, client, server, cc, cs, listener, c, s }
    }

    /// Three more requests. The first is answered, and the client has read the answer; the second one is read.
    fn request(&mut self) -> ([IdKey; 3], [IdKey; 2]) {
        let clients = [7, 8, 9].map(|qp_num| {
            let id = self.client.resolved(self.cc, "10.0.0.2:7");
            self.client.connect(id, with_qp(qp_num), &[]).unwrap();
            id
        });
        let read = [0; 2].map(|_| self.server.requested(self.cs, self.listener));
        self.server.accept(read[0], with_qp(10), &[]).unwrap();
        self.client.next(self.cc).is(clients[0], CmEvent::ConnectResponse, 0);
        (clients, read)
    }
}

#[test]
fn a_host_that_vanishes_tells_no_peer() {
    let Apart { fabric: _fabric, far, mut client, cc, c, .. } = Apart::new();
    far.set_link(false);
    client.quiet(cc, SECOND * 1000);
    client.disconnect(c).unwrap();
    let (seen, waited) = client.next_timed(cc);
    seen.is(c, CmEvent::Disconnected, -110);
    assert!(waited > SECOND * 70 && waited < SECOND * 80, "{waited:?}");
}

#[test]
fn the_peers_of_a_removed_device_see_a_destroy() {
    let mut of_server = Apart::new();
    let (clients, _) = of_server.request();
    of_server.far.remove_device();
    let Apart { client, cc, c, .. } = &mut of_server;
    client.next(*cc).is(*c, CmEvent::Disconnected, 0);
    for id in clients {
        client.next(*cc).is(id, CmEvent::Rejected, 28);
    }

    let mut of_client = Apart::new();
    let (_, [answered, read]) = of_client.request();
    of_client.near.remove_device();
    let Apart { server, cs, s, listener, .. } = &mut of_client;
    let unread = server.requested(*cs, *listener);
    server.next(*cs).is(*s, CmEvent::Disconnected, 0);
    server.next(*cs).is(answered, CmEvent::Rejected, 28);
    for id in [read, unread] {
        assert_eq!(server.accept(id, with_qp(11), &[]), EINVAL);
    }
}

#[test]
fn a_wildcard_listener_takes_to_the_device_that_comes() {
    let Apart { fabric: _fabric, far, mut client, mut server, cc, cs, listener: l, c, s, .. } = Apart::new();
    far.remove_device();
    server.next(cs).is(s, CmEvent::DeviceRemoval, 0);
    client.next(cc).is(c, CmEvent::Disconnected, 0);
    let again = client.resolved(cc, "10.0.0.2:7");
    client.connect(again, with_qp(7), &[]).unwrap();
    client.quiet(cc, SECOND);
    server.quiet(cs, SECOND);
    far.add_device();
    // The client's next attempt.
    let new = server.requested(cs, l);
    server.accept(new, with_qp(8), &[]).unwrap();
    client.next(cc).is(again, CmEvent::ConnectResponse, 0);
    // The ids of the removed device stay unusable, and their addresses are free.
    assert_eq!(server.disconnect(s), ENXIO);
    let id = server.id(cs);
    assert_eq!(server.bind(id, "10.0.0.2:0"), Ok(()));
    far.add_device();
    far.remove_device();
    far.remove_device();
    for id in [new, id] {
        server.next(cs).is(id, CmEvent::DeviceRemoval, 0);
    }
    server.quiet(cs, SECOND);
    // A process that has had a device can still open channels; a process that starts now cannot.
    let _ = server.channel();
    let mut late = Side::new(&far);
    let channel = late.fresh_channel();
    assert_eq!(late.call(Call::OpenChannel { channel }), Err(Errno::ENODEV));
}
