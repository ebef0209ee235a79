//! Events of a connected id, and their acks.

use std::time::Duration;

use cmid_proto::{CmEvent, Event, PortSpace, State, Time, Transport};

use crate::world::{SOON, Side, World, attach};

/// An event of the id, which is no answer and owes an ack.
pub(crate) fn an_event(side: &mut Side) -> Event {
    side.host.fail_over();
    side.drive.readable_all();
    let _next = side.drive.run(64);
    let event = side.drive.next_event(side.channel).unwrap();
    assert_eq!((event.id, event.cm()), (side.id, Some(CmEvent::AddrChange)));
    event
}

#[test]
fn an_event_that_is_no_answer_does_not_end_a_disconnect() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, _] = &mut world.sides;
    client.session.as_mut().unwrap().disconnect(&mut client.drive).unwrap();
    let event = an_event(client);
    let session = client.session.as_mut().unwrap();
    session.handle(&mut client.drive, event, attach).unwrap();
    assert_eq!(format!("{session:?}"), format!("Session {{ id: {:?}, end: Begun, .. }}", session.id()));
    world.ends(SOON);
}

#[test]
fn an_ack_that_is_refused_is_an_error_of_a_session_if_it_is_for_its_own_id() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, _] = &mut world.sides;
    let other = client.drive.create_id(Some(client.channel), PortSpace::Tcp).unwrap();
    client.drive.resolve_addr(other, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    world.fabric.advance_by(Duration::from_millis(10));
    client.read(&world.fabric);
    let event = client.drive.next_event(client.channel).unwrap();
    client.drive.destroy_now(other).unwrap();
    client.session.as_mut().unwrap().handle(&mut client.drive, event, attach).unwrap();
    assert!(client.is_open());
    let event = an_event(client);
    client.drive.destroy_now(client.id).unwrap();
    client.session.as_mut().unwrap().handle(&mut client.drive, event, attach).unwrap_err();
}

#[test]
fn a_cancel_while_the_id_waits_for_an_ack_makes_no_second_destroy() {
    let mut world = World::connected(Transport::InfiniBand, SOON);
    let [client, _] = &mut world.sides;
    let event = an_event(client);
    for _ in 0..2 {
        client.session.as_mut().unwrap().cancel(&mut client.drive).unwrap();
        assert_eq!(client.drive.core().state(client.id), Some(State::Destroying));
    }
    client.drive.ack(event.ack_token.unwrap()).unwrap();
    client.read(&world.fabric);
    assert_eq!(client.drive.core().state(client.id), None);
}
