//! Sessions from the connect to the destroyed id: whatever ends them, nothing is left.
#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "a test")]

mod acks;
mod drain;
mod failing_calls;
mod options;
mod queues;
mod signaled;
mod world;

use std::time::Duration;

use cmid_proto::datapath::{Access, Attaching, Caps, Completion, CreateError, QpParts, SendWr, prelude::*};
use cmid_proto::handshake::{Incoming, Options, Session};
use cmid_proto::{Acks, CmOption, Drive, Errno, Limits, State, Transport};
use cmid_sim::{Config, Fabric, SimDevice};
use world::{Attached, SOON, Side, World, advance, attach, within};

/// The numbers of the work requests and whether they have succeeded.
fn results(completions: &[Completion]) -> Vec<(u64, bool)> {
    completions.iter().map(|it| (it.wr_id, it.is_success())).collect()
}

/// Runs each function as a test on both transports.
macro_rules! on_each_transport {
    ($($name:ident),* $(,)?) => {
        mod infiniband {
            $(#[test] fn $name() { super::$name(cmid_proto::Transport::InfiniBand); })*
        }
        mod iwarp {
            $(#[test] fn $name() { super::$name(cmid_proto::Transport::Iwarp); })*
        }
    };
}

on_each_transport! {
    a_disconnect_ends_both_sides_and_completes_all_work,
    both_sides_may_disconnect_at_once,
    unsignaled_sends_are_over_before_the_qp_is_destroyed,
    a_failed_completion_disconnects,
    a_connection_that_moves_to_another_driver_is_a_session_there,
    a_peer_may_disconnect_while_the_connection_moves,
    a_session_that_ends_may_move_at_each_step,
    a_peer_that_is_gone_delays_the_end_until_the_limit,
    a_removed_device_ends_the_session_without_the_peer,
    a_refused_connect_ends_the_session,
    a_cancel_destroys_the_id_at_once_at_each_step,
    a_peer_learns_of_a_cancel,
    a_refused_option_destroys_the_id,
    the_earlier_of_both_limits_ends_a_handshake,
    a_session_in_synchronous_mode_ends_and_may_move,
    a_cq_that_fails_does_not_keep_a_session_that_has_ended,
}

fn a_disconnect_ends_both_sides_and_completes_all_work(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..8))).unwrap();
    world.until(SOON, |[_, server]| !server.completions.is_empty());
    let [_, server] = &mut world.sides;
    server.session.as_mut().unwrap().disconnect(&mut server.drive).unwrap();
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(2, true), (1, false)], vec![(1, true)]));
}

fn both_sides_may_disconnect_at_once(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    for side in &mut world.sides {
        side.session.as_mut().unwrap().disconnect(&mut side.drive).unwrap();
    }
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(1, false)], vec![(1, false)]));
}

fn unsignaled_sends_are_over_before_the_qp_is_destroyed(transport: Transport) {
    for first in 0..2 {
        let mut world = World::connected(transport, SOON);
        let [client, _] = &mut world.sides;
        let (parts, mr) = client.session().attached().unwrap();
        parts.qp.post_send(SendWr::send(2, mr.sge(0..8)).unsignaled()).unwrap();
        world.until(SOON, |[_, server]| !server.completions.is_empty());
        // Until the ACK is there.
        world.fabric.advance_to(world.fabric.now().after(Duration::from_millis(10)));
        let side = &mut world.sides[first];
        side.session.as_mut().unwrap().disconnect(&mut side.drive).unwrap();
        // The mark that has flushed it is not reported.
        let [client, _] = world.ends(SOON);
        assert_eq!(results(&client), [(1, false)]);
    }
}

fn a_failed_completion_disconnects(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    let (parts, mr) = client.session().attached().unwrap();
    // The peer's receive has 8 bytes.
    parts.qp.post_send(SendWr::send(2, mr.sge(0..16))).unwrap();
    let [client, server] = world.ends(SOON);
    // On iWARP a send is complete when TCP has it, and the end of the connection flushes the receive.
    let is_iwarp = transport == Transport::Iwarp;
    assert_eq!((results(&client), results(&server)), (vec![(2, is_iwarp), (1, false)], vec![(1, false)]));
}

/// The next call disconnects again.
#[test]
fn a_disconnect_that_fails_loses_no_completion() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, _] = &mut world.sides;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..16))).unwrap();
    world.fabric.advance_to(world.fabric.now().after(Duration::from_millis(10)));
    let [client, _] = &mut world.sides;
    client.host.fail_call(0, Errno::ENOMEM);
    let session = client.session.as_mut().unwrap();
    let results = [(); 3]
        .map(|()| session.next_completion(&mut client.drive).map(|it| it.map(|it| it.wr_id)).map_err(|it| it.errno()));
    assert_eq!(results, [Ok(Some(2)), Err(Errno::ENOMEM), Ok(Some(1))]);
    world.ends(SOON);
}

fn a_connection_that_moves_to_another_driver_is_a_session_there(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    client.moves(&world.fabric);
    assert!(client.is_open());
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..8))).unwrap();
    world.until(SOON, |sides| sides.iter().all(|side| !side.completions.is_empty()));
    let [client, _] = &mut world.sides;
    client.session.as_mut().unwrap().disconnect(&mut client.drive).unwrap();
    assert!(!client.is_open());
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(2, true), (1, false)], vec![(1, true)]));
}

#[test]
fn a_failed_completion_disconnects_also_if_the_connection_moves_after_it() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let World { fabric, sides: [client, _] } = &mut world;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..16))).unwrap();
    fabric.advance_by(Duration::from_millis(10));
    let failed = client.session.as_mut().unwrap().next_completion(&mut client.drive).unwrap().unwrap();
    assert!(!failed.is_success() && client.is_open());
    client.moves(fabric);
    assert!(client.is_open());
    world.ends(SOON);
}

fn a_peer_may_disconnect_while_the_connection_moves(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, server] = &mut world.sides;
    server.session.as_mut().unwrap().disconnect(&mut server.drive).unwrap();
    world.fabric.advance_to(world.fabric.now().after(Duration::from_secs(1)));
    client.moves(&world.fabric);
    // The event comes with the id.
    assert!(client.is_open() && client.drive.core().state(client.id) == Some(State::Connected));
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(1, false)], vec![(1, false)]));
}

/// Each step of the end: the disconnect, the answer of the peer, the last send.
fn a_session_that_ends_may_move_at_each_step(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..8)).unsignaled()).unwrap();
    client.session.as_mut().unwrap().disconnect(&mut client.drive).unwrap();
    while !world.sides[0].is_over() {
        world.sides[0].moves(&world.fabric);
        assert!(!world.sides[0].is_open());
        world.turn();
    }
    let [client, _] = world.ends(SOON);
    assert!(client.iter().all(|it| it.wr_id < 3), "{client:?}");
}

/// Acks that are owed, a limit, and a session that is over; and one that is taken in where no room is.
#[test]
fn a_release_that_fails_returns_the_session_and_an_adopt_its_memory() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, _] = &mut world.sides;
    let fails = |side: &mut Side| {
        let failed = side.session.take().unwrap().release(&mut side.drive).unwrap_err();
        let text = failed.to_string();
        side.session = Some(failed.given);
        assert!(side.is_open());
        text
    };
    // At the limit on channels: synchronous mode needs one more.
    let others: Vec<_> = core::iter::from_fn(|| client.drive.open_channel(Acks::Explicit).ok()).collect();
    assert!(fails(client).starts_with("refused: migrate_id on id0 while connected: the limit on channels is reached"));
    others.into_iter().for_each(|channel| client.drive.close_channel(channel).unwrap());
    // An event that is not acked.
    let event = acks::an_event(client);
    assert_eq!(fails(client), "refused: release on id0 while connected: events of the id are not acked");
    client.drive.ack(event.ack_token.unwrap()).unwrap();
    let released = client.session.take().unwrap().release(&mut client.drive).unwrap();
    let mut full = Drive::new(client.drive.device().sibling(), Limits { channels: 1, ..Limits::default() });
    let channel = full.open_channel(Acks::Explicit).unwrap();
    let refused = released.adopt(&mut full, channel).unwrap_err();
    assert!(refused.to_string().starts_with("refused: the limit on channels is reached"), "{refused}");
    let (parts, mr) = refused.given;
    drop(parts);
    assert_eq!(mr.deregister().unwrap().buffer.len(), 64);
    // One that is over has nothing to release.
    world.until(SOON, |[_, server]| server.is_over());
    let [_, server] = &mut world.sides;
    let refused = server.session.take().unwrap().release(&mut server.drive).unwrap_err();
    assert_eq!(refused.to_string(), "refused: release on id1: there is no such id");
    assert!(refused.given.is_over());
}

fn a_peer_that_is_gone_delays_the_end_until_the_limit(transport: Transport) {
    let limit = Duration::from_millis(300);
    let mut world = World::connected(transport, limit);
    let [client, server] = &mut world.sides;
    server.host.set_link(false);
    client.session.as_mut().unwrap().disconnect(&mut client.drive).unwrap();
    let begun = world.fabric.now();
    world.until(limit, |[client, _]| client.is_over());
    // On iWARP the own end of TCP is the end.
    assert_eq!(world.fabric.now().since(begun) >= limit, transport == Transport::InfiniBand);
    let [mut client, server] = world.sides;
    client.has_ended();
    assert_eq!(results(&client.completions), [(1, false)]);
    // This side has seen nothing of it.
    assert!(!server.is_over());
}

fn a_removed_device_ends_the_session_without_the_peer(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    client.host.remove_device();
    world.until(SOON, |[client, _]| client.is_over());
    let [client, _] = &mut world.sides;
    let id = client.session().id();
    assert_eq!(client.drive.core().state(id), None);
    assert_eq!(results(&client.completions), [(1, false)]);
}

fn a_refused_connect_ends_the_session(transport: Transport) {
    let fabric = Fabric::new(Config::default());
    let [mut client, _server] = [Side::new(&fabric, transport, "10.0.0.1"), Side::new(&fabric, transport, "10.0.0.2")];
    // Nobody listens.
    let to = "10.0.0.2:7471".parse().unwrap();
    client.session = Some(Session::connect_on(&mut client.drive, client.id, to, &within(SOON)).unwrap());
    let error = loop {
        if let Err(error) = client.turn(&fabric, SOON) {
            break error;
        }
        advance(&fabric, &[&client]);
    };
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    assert!(client.is_over() && client.session().attached().is_none());
    assert_eq!(client.drive.core().state(client.id), None);
}

fn a_cancel_destroys_the_id_at_once_at_each_step(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    for (side, state) in world.sides.iter_mut().zip([State::Connected, State::Closing]) {
        let session = side.session.as_mut().unwrap();
        if state == State::Closing {
            session.disconnect(&mut side.drive).unwrap();
        }
        assert_eq!(side.drive.core().state(session.id()), Some(state));
        session.cancel(&mut side.drive).unwrap();
        session.cancel(&mut side.drive).unwrap();
        let id = session.id();
        assert!(side.is_over());
        assert_eq!(side.drive.core().state(id), None);
    }
    let fabric = Fabric::new(Config::default());
    let mut client = Side::new(&fabric, transport, "10.0.0.1");
    let to = "10.0.0.2:7471".parse().unwrap();
    let mut session: Session<Attached> = Session::connect_on(&mut client.drive, client.id, to, &within(SOON)).unwrap();
    session.cancel(&mut client.drive).unwrap();
    assert!(session.is_over());
    assert_eq!(client.drive.core().state(client.id), None);
}

fn a_peer_learns_of_a_cancel(transport: Transport) {
    let mut world = World::connected(transport, SOON);
    let [client, _] = &mut world.sides;
    client.session.as_mut().unwrap().cancel(&mut client.drive).unwrap();
    world.until(SOON, |[_, server]| server.is_over());
    let [client, server] = &mut world.sides;
    assert_eq!((client.drive.core().state(client.id), results(&server.completions)), (None, vec![(1, false)]));
}

fn a_refused_option_destroys_the_id(transport: Transport) {
    let fabric = Fabric::new(Config::default());
    let [mut client, mut server] =
        [Side::new(&fabric, transport, "10.0.0.1"), Side::new(&fabric, transport, "10.0.0.2")];
    let to = "10.0.0.2:7471".parse().unwrap();
    server.drive.bind(server.id, to).unwrap();
    server.drive.listen(server.id, 1).unwrap();
    // 31 is the largest.
    let refused = Options { settings: &[CmOption::AckTimeout(32)], ..Options::default() };
    Session::<Attached>::connect(&mut client.drive, Some(client.channel), to, &refused).unwrap_err();
    assert!(client.drive.core().ids().eq([client.id]));

    let channel = Some(client.channel);
    client.session = Some(Session::connect(&mut client.drive, channel, to, &Options::default()).unwrap());
    let request = loop {
        client.turn(&fabric, SOON).unwrap();
        server.drive.set_now(fabric.now());
        server.drive.readable_all();
        let _next = server.drive.run(64);
        match server.drive.next_event(server.channel) {
            Some(event) => break Incoming::new(&mut server.drive, event).unwrap(),
            None => advance(&fabric, &[&client, &server]),
        }
    };
    // That of the request holds for both sides.
    let refused = Options { settings: &[CmOption::Tos(1)], ..Options::default() };
    Session::accept(&mut server.drive, request, &refused, attach).unwrap_err();
    assert!(server.drive.core().ids().eq([server.id]));
    let error = loop {
        advance(&fabric, &[&client, &server]);
        if let Err(error) = client.turn(&fabric, SOON) {
            break error;
        }
    };
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
}

fn the_earlier_of_both_limits_ends_a_handshake(transport: Transport) {
    let soon = Duration::from_millis(300);
    for (timeout, deadline) in [(soon, SOON), (SOON, soon)] {
        let fabric = Fabric::new(Config::default());
        let [mut client, server] =
            [Side::new(&fabric, transport, "10.0.0.1"), Side::new(&fabric, transport, "10.0.0.2")];
        server.host.set_link(false);
        let options = Options { deadline: fabric.now().after(deadline), ..within(timeout) };
        let (to, channel) = ("10.0.0.2:7471".parse().unwrap(), Some(client.channel));
        let begun = fabric.now();
        client.session = Some(Session::connect(&mut client.drive, channel, to, &options).unwrap());
        let error = loop {
            if let Err(error) = client.turn(&fabric, SOON) {
                break error;
            }
            advance(&fabric, &[&client]);
        };
        assert_eq!(error.errno(), Errno::ETIMEDOUT, "{error}");
        let took = fabric.now().since(begun);
        assert!(took <= soon, "{took:?}");
    }
}

/// The session polls for the ends of its requests, and gets the other events from the channel of the id. It moves after this
/// many steps of its end, to a channel.
fn a_session_in_synchronous_mode_ends_and_may_move(transport: Transport) {
    for moves_after in [0, 1, 2, 3, u32::MAX] {
        let mut world = World::unconnected(transport);
        let [client, _] = &mut world.sides;
        let address = "10.0.0.2:7471".parse().unwrap();
        client.session = Some(Session::connect(&mut client.drive, None, address, &within(SOON)).unwrap());
        client.channel = client.drive.core().channel(client.session.as_ref().unwrap().id()).unwrap();
        world.until(SOON, |[client, server]| client.is_open() && server.is_open());
        let [client, _] = &mut world.sides;
        client.session.as_mut().unwrap().disconnect(&mut client.drive).unwrap();
        for step in 0.. {
            if world.sides[0].is_over() {
                break;
            }
            if step == moves_after {
                let World { fabric, sides: [client, server] } = &mut world;
                advance(fabric, &[client, server]);
                client.read(fabric);
                client.moves(fabric);
            }
            world.turn();
        }
        assert_eq!(world.ends(SOON).map(|side| results(&side)), [(); 2].map(|()| vec![(1, false)]), "{moves_after:?}");
    }
}

/// The notifications of a CQ on a shared channel are not the session's to take. So fails each CQ of a removed device.
fn a_cq_that_fails_does_not_keep_a_session_that_has_ended(transport: Transport) {
    let attach = |device: &mut SimDevice, to: Attaching<'_>| -> Result<Attached, CreateError> {
        let (nic, pd) = (device.device_of(to.id())?, device.alloc_pd(to.id())?);
        let channel = device.create_comp_channel(&nic)?;
        let cq = device.create_cq_at(&nic, Some(&channel), 32, 0)?;
        let qp = device.create_qp(to, &pd, &cq, &cq, Caps::default())?;
        let mr = pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
        Ok((QpParts { qp, pd, cq }, mr))
    };
    let mut world = World::unconnected(transport);
    let [client, _] = &mut world.sides;
    let address = "10.0.0.2:7471".parse().unwrap();
    client.session = Some(Session::connect_on(&mut client.drive, client.id, address, &within(SOON)).unwrap());
    let mut failures = 0;
    while !world.sides[0].is_over() {
        let World { fabric, sides: [client, server] } = &mut world;
        advance(fabric, &[client, server]);
        server.turn(fabric, SOON).unwrap();
        client.read(fabric);
        let session = client.session.as_mut().unwrap();
        while let Some(event) = client.drive.next_event(client.channel) {
            if session.handle(&mut client.drive, event, attach).unwrap().is_some() {
                session.disconnect(&mut client.drive).unwrap();
            }
        }
        match session.next_completion(&mut client.drive) {
            Ok(none) => assert_eq!(none, None),
            Err(error) => failures += u32::from(error.errno() == Errno::EINVAL),
        }
    }
    assert!(failures > 0);
    world.ends(SOON);
}
