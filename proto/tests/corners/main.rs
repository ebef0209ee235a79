//! Corner cases, each by itself: what the dialogues do not come past.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, clippy::wildcard_enum_match_arm, reason = "of the dialogues")]
#[path = "../dialogues/fixture.rs"]
mod fixture;

mod deadlines;
mod groups;
mod release;
mod requests;
mod values;

use cmid_proto::memory::{Domain, PdState};
use cmid_proto::{Acks, CmEvent, Errno, EventKind, Fault, Limits, RawEvent, Request, State, Why};

use crate::fixture::{LISTEN, OK, RESOLVE, Stage, cm, connect, to};

#[test]
fn the_id_of_a_request_that_was_moved_stays_also_where_its_listener_came_by() {
    let mut stage = Stage::new();
    let [here, there, beyond] = [(); 3].map(|()| stage.channel(Acks::OnDelivery));
    let listener = stage.id(Some(here));
    stage.does(listener, LISTEN);
    let child = stage.says_request(listener);
    stage.does(child, to(there));
    for channel in [there, beyond] {
        stage.asks(listener, to(channel)).unwrap();
        stage.no_call();
        assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(there), Some(there)));
    }
    stage.sees(beyond, child, cm(CmEvent::ConnectRequest));
    stage.ends(&[child, listener], &[here, there, beyond]);
}

#[test]
fn events_that_move_are_news() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let before = stage.core.news();
    stage.does(id, to(there));
    assert_ne!(stage.core.news(), before, "whoever serves the new channel has not looked at it");
}

#[test]
fn a_migration_that_fails_after_the_acks_tells_a_negative_errno() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.acks(event);
    stage.expect_call("migrate_id", Err(Errno::ENOMEM));
    let told = stage.sees(here, id, EventKind::Migrated);
    assert_eq!((told.status, told.result()), (-Errno::ENOMEM.0, Err(Errno::ENOMEM)));
}

#[test]
fn a_destruction_that_fails_after_the_acks_tells_a_negative_errno() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, Request::Destroy).unwrap();
    stage.acks(event);
    stage.expect_call("destroy_id", Err(Errno::EBUSY));
    assert_eq!(stage.sees(here, id, EventKind::Destroyed).status, -Errno::EBUSY.0);
    assert_eq!(stage.state(id), State::Failed);
}

#[test]
fn a_request_is_not_delivered_while_the_device_moves_its_listener() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let listener = stage.id(Some(here));
    stage.does(listener, LISTEN);
    let child = stage.says_request(listener);
    // A listener that has lost its device is moved as any other id.
    let line = stage.core.line(listener).unwrap();
    stage.says_on(line, fixture::raw(listener, CmEvent::DeviceRemoval, 0));
    stage.asks(listener, to(there)).unwrap();
    let (token, _) = stage.takes_call("migrate_id");
    stage.no_event(here);
    stage.answers(token, OK);
    stage.all_well();
    stage.sees(there, child, cm(CmEvent::ConnectRequest));
    stage.sees(there, listener, cm(CmEvent::DeviceRemoval));
}

#[test]
fn an_id_with_a_qp_is_established_by_the_library_alone() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.does(id, Request::AttachQp);
    stage.does(id, RESOLVE);
    stage.tells(id, CmEvent::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.tells(id, CmEvent::RouteResolved);
    stage.does(id, connect());
    // No library says so, but the core does not depend on that.
    stage.tells(id, CmEvent::ConnectResponse);
    stage.refuses(id, Request::Establish, Why::HasQp);
}

#[test]
fn an_id_listens_only_where_there_is_room_for_its_channel() {
    let mut stage = Stage::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let here = stage.channel(Acks::OnDelivery);
    let id = stage.id(Some(here));
    stage.refuses(id, LISTEN, Why::NoChannelLeft);
}

#[test]
fn a_listen_goes_no_further_when_its_id_is_to_be_destroyed() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(here));
    stage.asks(id, LISTEN).unwrap();
    let (token, _) = stage.takes_call("create_event_channel");
    stage.asks(id, Request::Destroy).unwrap();
    stage.answers(token, OK);
    stage.expect_call("destroy_event_channel", OK);
    stage.expect_call("destroy_id", OK);
    stage.no_call();
    stage.ends(&[], &[here]);
}

#[test]
fn a_request_on_a_channel_that_is_being_closed_is_a_fault() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(here, State::Listening);
    let line = stage.core.line(listener).unwrap();
    stage.asks(listener, Request::Destroy).unwrap();
    stage.expect_call("destroy_id", OK);
    let (token, _) = stage.takes_call("destroy_event_channel");
    // The core wants none, so the key is that of any other channel.
    assert_eq!(stage.core.wants_event(line), None);
    let child = stage.core.wants_event(here).unwrap();
    let request = RawEvent { listener: Some(listener), ..fixture::raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(stage.core.handle_event(line, request), Err(Fault::NoSuchChannel { channel: line }));
    stage.core.check();
    stage.answers(token, OK);
    assert_eq!((stage.core.ids(), stage.core.channels()), (0, 1));
}

#[test]
fn a_call_is_made_with_its_own_private_data() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let [one, two] = [(); 2].map(|()| stage.in_state(here, State::RouteResolved));
    let with = |private_data| Request::Connect { param: fixture::param(), private_data };
    stage.asks(one, with(b"one")).unwrap();
    stage.asks(two, with(b"two")).unwrap();
    let calls: Vec<_> = std::iter::from_fn(|| stage.core.poll_call()).collect();
    let data: Vec<_> = calls.iter().map(|(token, _)| stage.core.call_data(*token)).collect();
    assert_eq!(data, [&b"one"[..], b"two"]);
}

#[test]
fn an_idle_id_that_found_no_route_is_bound() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(here));
    stage.asks(id, RESOLVE).unwrap();
    stage.expect_call("resolve_addr", Err(Errno::ENETUNREACH));
    assert_eq!(stage.state(id), State::Bound);
    // With another errno nothing has happened.
    let id = stage.id(Some(here));
    stage.asks(id, RESOLVE).unwrap();
    stage.expect_call("resolve_addr", Err(Errno::EINVAL));
    assert_eq!(stage.state(id), State::Idle);
}

#[test]
fn a_pd_that_could_not_be_deallocated_lives_on() {
    let mut domain = Domain::alloc();
    domain.handle_outcome(Ok(())).unwrap();
    domain.dealloc().unwrap();
    domain.handle_outcome(Err(Errno::EBUSY)).unwrap();
    assert_eq!(domain.state(), PdState::Live);
    domain.acquire().unwrap();
}

#[test]
fn an_event_stays_where_it_is_when_those_behind_it_vanish() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let [first, second, third] = [(); 3].map(|()| stage.id(Some(here)));
    for id in [first, second, third] {
        stage.says(id, CmEvent::AddrChange);
    }
    for id in [second, third] {
        stage.does(id, Request::Destroy);
    }
    stage.sees(here, first, cm(CmEvent::AddrChange));
    stage.ends(&[first], &[here]);
}

#[test]
fn an_id_does_not_listen_while_one_ack_is_owed() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.refuses(id, LISTEN, Why::OwesAcks);
    stage.acks(event);
    stage.does(id, LISTEN);
    stage.ends(&[id], &[here]);
}

#[test]
fn only_the_call_that_is_under_way_has_private_data() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::AddrResolved);
    stage.asks(id, Request::ResolveRoute).unwrap();
    let (resolve, _) = stage.takes_call("resolve_route");
    stage.answers(resolve, OK);
    stage.tells(id, CmEvent::RouteResolved);
    stage.asks(id, connect()).unwrap();
    let (connect, _) = stage.takes_call("connect");
    assert_eq!((stage.core.call_data(resolve), stage.core.call_data(connect)), (&b""[..], &b"hello"[..]));
    stage.answers(connect, OK);
    assert!(stage.core.call_data(connect).is_empty());
    stage.ends(&[id], &[here]);
}
