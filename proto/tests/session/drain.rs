//! The drain of a QP, with which a session ends.

use std::time::Duration;

use cmid_proto::datapath::{
    Caps, Drain, DrainError, Draining, QpParts, QpState, SendFlags, SendWr, Unpolled, prelude::*,
};
use cmid_proto::{Errno, IdKey, PortSpace, Time, Transport};
use cmid_sim::{Cq, Qp};

use crate::queues::Scripted;
use crate::world::{SOON, Side, World};

const DEADLINE: Time = Time(100);
const UNSIGNALED: SendFlags = SendFlags::empty();

/// What a poll finds before the completions are there: no CQ.
fn none<'a>() -> [&'a mut Cq; 0] {
    []
}

/// A client whose QP is in its error state. It has posted a receive and sends without bytes, which the server has got.
fn ended(sends: &[SendFlags]) -> World {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, server] = &mut world.sides;
    let (receiver, mr) = server.session().attached().unwrap();
    sends.iter().for_each(|_| receiver.qp.post_recv(1, mr.sge(0..8)).unwrap());
    let (QpParts { qp, .. }, mr) = client.session().attached().unwrap();
    for &flags in sends {
        qp.post_send(SendWr { flags, ..SendWr::send(2, mr.sge(0..0)) }).unwrap();
    }
    world.fabric.advance_by(Duration::from_millis(10));
    let [client, _] = &mut world.sides;
    client.drive.device_mut().destroy_qp(client.id).unwrap();
    world
}

fn parts(world: &mut World) -> (&mut Qp, &mut Cq) {
    let (parts, _) = world.sides[0].session().attached().unwrap();
    (&mut parts.qp, &mut parts.cq)
}

/// Another id of the client in this port space, with a QP on the same CQ.
fn neighbour(client: &mut Side, space: PortSpace) -> (Qp, IdKey) {
    let (parts, _) = client.session.as_mut().unwrap().attached().unwrap();
    parts.cq.resize(60).unwrap();
    let id = client.drive.create_id(Some(client.channel), space).unwrap();
    client.drive.bind(id, "10.0.0.1:0".parse().unwrap()).unwrap();
    let caps = Caps { max_send_wr: 1, ..Caps::default() };
    let QpParts { qp, .. } = client.drive.qp(id).pd(&parts.pd).cq(&parts.cq).caps(caps).attach().unwrap();
    (qp, id)
}

#[test]
fn a_drain_is_over_when_nothing_of_the_qp_is_left() {
    let mut world = ended(&[]);
    let ((qp, cq), mut drain, mut taken) = (parts(&mut world), Drain::until(DEADLINE), Vec::new());
    assert_eq!(drain.poll(Time(1), qp, &mut none(), |_| ()), Ok(Draining::Waits));
    assert_eq!(qp.unpolled(), Unpolled { sends: 0, receives: 1 }, "nothing is posted behind receives");
    let drained = drain.poll(Time(1), qp, &mut [cq], |done| taken.push((done.wr_id, done.is_success())));
    assert_eq!((drained, taken), (Ok(Draining::Over), vec![(1, false)]));
}

#[test]
fn a_last_send_flushes_what_has_no_completion_and_is_not_reported() {
    let mut world = ended(&[UNSIGNALED; 2]);
    let [client, _] = &mut world.sides;
    let (mut other, id) = neighbour(client, PortSpace::Tcp);
    client.drive.device_mut().destroy_qp(id).unwrap();
    assert!(Drain::mark(&mut other));
    let ((qp, cq), mut taken, mut drain) = (parts(&mut world), Vec::new(), Drain::until(DEADLINE));
    assert_eq!(drain.poll(Time(1), qp, &mut none(), |_| ()), Ok(Draining::Waits));
    assert_eq!(qp.unpolled().sends, 3, "it is posted once");
    let drained = drain.poll(Time(1), qp, &mut [cq], |done| taken.push((done.wr_id, done.qp_num)));
    assert_eq!((drained, taken), (Ok(Draining::Over), vec![(1, qp.num()), (Drain::MARK, other.num())]));
}

/// As that of a future that was dropped.
#[test]
fn the_last_send_of_an_earlier_drain_is_not_reported_either() {
    let mut world = ended(&[UNSIGNALED]);
    let ((qp, cq), mut taken) = (parts(&mut world), Vec::new());
    assert!(Drain::mark(qp));
    let drained = Drain::until(DEADLINE).poll(Time(1), qp, &mut [cq], |done| taken.push(done.wr_id));
    assert_eq!((drained, taken), (Ok(Draining::Over), vec![1]));
}

#[test]
fn a_full_queue_gets_the_last_send_later_and_a_datagram_qp_none() {
    let mut world = ended(&[SendFlags::SIGNALED, UNSIGNALED, UNSIGNALED, UNSIGNALED]);
    let ((qp, cq), mut drain, mut taken) = (parts(&mut world), Drain::until(DEADLINE), Vec::new());
    assert_eq!(drain.poll(Time(1), qp, &mut none(), |_| ()), Ok(Draining::Waits));
    assert_eq!(qp.unpolled().sends, 4);
    let drained = drain.poll(Time(1), qp, &mut [cq], |done| taken.push(done.wr_id));
    assert_eq!((drained, taken), (Ok(Draining::Over), vec![2, 1]));

    let (mut datagrams, _) = neighbour(&mut world.sides[0], PortSpace::Udp);
    assert!(Drain::mark(&mut datagrams), "another attempt would be in vain");
    assert!(datagrams.unpolled().is_none());
}

#[test]
fn a_drain_ends_at_its_deadline_with_what_is_left_and_polls_before() {
    let mut world = ended(&[UNSIGNALED; 4]);
    let ((qp, cq), mut drain, mut taken) = (parts(&mut world), Drain::until(DEADLINE), 0);
    assert_eq!([1, 99].map(|now| drain.poll(Time(now), qp, &mut none(), |_| ())), [Ok(Draining::Waits); 2]);
    let error = drain.poll(DEADLINE, qp, &mut [cq], |_| taken += 1).unwrap_err();
    assert_eq!((error, error.errno()), (DrainError::TimedOut(Unpolled { sends: 4, receives: 0 }), Errno::ETIMEDOUT));
    assert_eq!(error.to_string(), "timed out: 4 requests of the send queue and 0 receives are left");
    assert_eq!(taken, 1);
}

#[test]
fn a_qp_that_works_is_not_drained_and_an_unknown_state_is_no_reason() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let (mut bound, _) = neighbour(&mut world.sides[0], PortSpace::Tcp);
    let drain = |qp: &mut Qp| Drain::until(DEADLINE).poll(Time(1), qp, &mut none(), |_| ());
    for (qp, state) in [(&mut bound, QpState::INIT), (parts(&mut world).0, QpState::RTS)] {
        let error = drain(qp).unwrap_err();
        assert_eq!((error, error.errno()), (DrainError::NotEnded(state), Errno::EINVAL));
    }
    world.sides[0].host.remove_device();
    assert!(bound.state().is_err());
    assert_eq!(drain(&mut bound), Ok(Draining::Over));
}

/// A completion between both calls would cause no notification otherwise.
#[test]
fn a_cq_is_armed_before_it_is_polled() {
    let (mut world, mut cq) = (ended(&[]), Scripted::new(40, vec![Ok(0)]));
    let drained = Drain::until(DEADLINE).poll(Time(1), parts(&mut world).0, &mut [&mut cq], |_| ());
    assert_eq!((drained, cq.calls.take()), (Ok(Draining::Waits), vec!["arm", "poll"]));
}

#[test]
fn one_poll_takes_at_most_what_a_cq_has_room_for() {
    // The CQ is never empty, because of other QPs.
    let (mut world, mut taken) = (ended(&[]), 0);
    let mut busy = Scripted::new(40, vec![Ok(16); 9]);
    let drained = Drain::until(DEADLINE).poll(Time(1), parts(&mut world).0, &mut [&mut busy], |_| taken += 1);
    assert_eq!((drained, taken), (Ok(Draining::Waits), 48));
}

#[test]
fn the_error_of_a_poll_ends_a_drain() {
    let (mut world, mut broken) = (ended(&[]), Scripted::new(1, vec![Err(Errno::EIO)]));
    let drained = Drain::until(DEADLINE).poll(Time(1), parts(&mut world).0, &mut [&mut broken], |_| ());
    assert_eq!(drained, Err(DrainError::Device(Errno::EIO)));
}
