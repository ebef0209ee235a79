//! Shared receive queues: what a simulated device can be told to do, and what soft-RoCE does not show.

use cmid_proto::datapath::{AsyncEventKind, AsyncSource, Attaching, PostReason, SendWr, SrqCaps, prelude::*};
use cmid_proto::{CmEvent, Datagram, Errno, IdKey};
use cmid_sim::{Access, AsyncEvents, Caps, Config, Flavour, GRH_LEN, PdState, Qp, QpState, To, WcStatus};

use crate::common::{Env, Equipment, SECOND, Side, bytes_at, why};
use crate::datagrams::udp;
use crate::iwarp;
use crate::providers::polled;

const CAPS: SrqCaps = SrqCaps { max_wr: 4, max_sge: 1 };

/// A QP that takes its receives from an SRQ, with its PD and CQs.
fn equip(side: &mut Side, id: IdKey) -> (Equipment, cmid_sim::Srq) {
    let pd = side.device.alloc_pd(id).unwrap();
    let srq = pd.create_srq(CAPS).unwrap();
    let [send_cq, recv_cq] = [16, 4].map(|depth| side.device.create_cq(id, depth).unwrap());
    let qp: Qp =
        side.device.create_qp_with_srq(Attaching::bare(id), &pd, &send_cq, &recv_cq, &srq, Caps::default()).unwrap();
    (Equipment { qp, pd, send_cq, recv_cq }, srq)
}

/// A connection whose server QP uses an SRQ.
fn connected(config: Config) -> (Env, Equipment, IdKey, Equipment, cmid_sim::Srq) {
    connected_in(Env::with(config))
}

fn connected_in(mut env: Env) -> (Env, Equipment, IdKey, Equipment, cmid_sim::Srq) {
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    let client_qp = env.client.qp(client);
    env.connect(client, &[]);
    let request = env.server.next(env.cs);
    assert_eq!((request.kind, request.listener), (CmEvent::ConnectRequest, Some(listener)));
    let new = request.id;
    let (server_qp, srq) = equip(&mut env.server, new);
    env.accept(new, &[]);
    env.client.next(env.cc).is(client, CmEvent::Established, 0);
    env.server.next(env.cs).is(new, CmEvent::Established, 0);
    (env, client_qp, new, server_qp, srq)
}

#[test]
fn a_removal_of_the_device_takes_the_srq() {
    let (env, _c, _, s, mut srq) = connected(Config { destroy_after_removal: true, ..Config::default() });
    let memory = s.pd.register([0; 8], Access::LOCAL_WRITE).unwrap();
    srq.post_recv(1, memory.sge(0..8)).unwrap();
    env.host.remove_device();
    assert_eq!(why(srq.post_recv(2, memory.sge(0..8))), Err(PostReason::NotRegistered));
    assert_eq!((srq.arm_limit(1), srq.limit()), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!(srq.unpolled(), 0);
    assert_eq!(s.pd.create_srq(CAPS).map(drop).map_err(Errno::from), Err(Errno::EIO));
    let Equipment { qp, pd, .. } = s;
    drop((qp, memory, srq));
    assert_eq!((pd.users(), pd.state()), (0, PdState::Stranded));
}

#[test]
fn datagrams_take_receives_of_an_srq_too() {
    let (mut env, listener) = udp();
    let (c, s) = env.looked_up(listener);
    let mut client = env.client.qp(c);
    let (mut server, mut srq) = equip(&mut env.server, s);
    env.accept(s, &[]);
    let Datagram { path, qp_num, qkey, .. } = env.client.next(env.cc).datagram.unwrap();
    let source = client.pd.register([7; 8], Access::empty()).unwrap();
    let memory = server.pd.register([0; 64], Access::LOCAL_WRITE).unwrap();
    let ah = client.pd.create_ah(&path).unwrap();
    srq.post_recv(1, memory.sge(0..64)).unwrap();
    for wr_id in [2, 3] {
        let to = To { ah: &ah, qp_num, qkey };
        client.qp.post_send(SendWr::send_to(wr_id, source.sge(0..8), to)).unwrap();
        env.fabric.advance_by(SECOND);
    }
    // The second one is lost: there is no receive.
    assert_eq!(polled(&env, &mut server.recv_cq), [(1, WcStatus::SUCCESS)]);
    assert_eq!(polled(&env, &mut client.send_cq), [(2, WcStatus::SUCCESS), (3, WcStatus::SUCCESS)]);
    assert_eq!((env.fabric.counters().datagrams_dropped, srq.unpolled()), (1, 0));
    assert_eq!(bytes_at(&memory, GRH_LEN), [7; 8]);
}

/// `rxe_resp_check_length` of 6.12, `send_data_in` of 6.1.
#[test]
fn a_datagram_that_is_too_long_costs_a_receive_of_an_srq() {
    for (flavour, status, is_over) in
        [(Flavour::Linux6_12, WcStatus::REM_INV_REQ_ERR, false), (Flavour::Linux6_1, WcStatus::LOC_QP_OP_ERR, true)]
    {
        let mut env = Env::with(Config { flavour, ..Config::default() });
        let listener = env.udp_listener();
        let (c, s) = env.looked_up(listener);
        let mut client = env.client.qp(c);
        let (mut server, mut srq) = equip(&mut env.server, s);
        env.accept(s, &[]);
        let Datagram { path, qp_num, qkey, .. } = env.client.next(env.cc).datagram.unwrap();
        let source = client.pd.register([7; 8], Access::empty()).unwrap();
        let memory = server.pd.register([0; 64], Access::LOCAL_WRITE).unwrap();
        let ah = client.pd.create_ah(&path).unwrap();
        srq.post_recv(1, memory.sge(0..GRH_LEN + 7)).unwrap();
        srq.post_recv(2, memory.sge(0..64)).unwrap();
        for wr_id in [3, 4] {
            let to = To { ah: &ah, qp_num, qkey };
            client.qp.post_send(SendWr::send_to(wr_id, source.sge(0..8), to)).unwrap();
        }
        let next = (2, WcStatus::SUCCESS);
        let expected = if is_over { vec![(1, status)] } else { vec![(1, status), next] };
        assert_eq!(polled(&env, &mut server.recv_cq), expected);
        assert_eq!(server.qp.state(), Ok(if is_over { QpState::ERR } else { QpState::RTS }));
    }
}

/// The number of events of a QP that takes no more receives.
fn last_ones(events: &mut AsyncEvents, qp: &Qp) -> usize {
    let all = std::iter::from_fn(|| events.next_event().unwrap());
    let of_qp = all.filter(|event| event.source == AsyncSource::Qp(qp.num()));
    of_qp.inspect(|event| assert_eq!(event.kind, AsyncEventKind::QP_LAST_WQE_REACHED)).count()
}

/// `flush_recv_queue` of rxe: at the end, and for each packet and each request afterwards. Linux 6.1 and siw do not report it.
#[test]
fn the_last_receive_is_reported_again_and_again_or_never() {
    for (flavour, count) in [(Flavour::Linux6_12, 1), (Flavour::Linux6_1, 0)] {
        let (mut env, mut c, server, mut s, _srq) = connected(Config { flavour, ..Config::default() });
        let nic = env.server.device.device_of(server).unwrap();
        let mut events = env.server.device.async_events(&nic).unwrap();
        let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register([0; 8], Access::LOCAL_WRITE).unwrap());
        env.server.device.destroy_qp(server).unwrap();
        env.fabric.advance_by(SECOND);
        assert_eq!(last_ones(&mut events, &s.qp), count);
        c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
        env.fabric.advance_by(SECOND / 10);
        assert_eq!(last_ones(&mut events, &s.qp), count, "after a packet");
        s.qp.post_send(SendWr::send(2, there.sge(0..8))).unwrap();
        assert_eq!(last_ones(&mut events, &s.qp), count, "after a request");
    }
}

/// The queue of four receives has seven places, or four on iWARP.
#[test]
fn the_limit_of_an_srq_may_be_as_high_as_its_queue_is_long() {
    for (env, most) in [(Env::new(), 7), (iwarp::env(), 4)] {
        let (_env, _c, _, _s, srq) = connected_in(env);
        assert_eq!([most, most + 1].map(|limit| srq.arm_limit(limit)), [Ok(()), Err(Errno::EINVAL)]);
    }
}

/// siw reports no last receive, and libsiw does not tell the limit.
#[test]
fn on_iwarp_an_srq_has_a_limit_that_cannot_be_read() {
    let (mut env, _c, server, s, srq) = connected_in(iwarp::env());
    let nic = env.server.device.device_of(server).unwrap();
    let mut events = env.server.device.async_events(&nic).unwrap();
    assert_eq!((srq.arm_limit(2), srq.limit()), (Ok(()), Err(Errno::EOPNOTSUPP)));
    env.server.device.destroy_qp(server).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!((s.qp.state(), last_ones(&mut events, &s.qp)), (Ok(QpState::ERR), 0));
}
