//! Corner cases that the dialogues do not reach.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, clippy::wildcard_enum_match_arm, reason = "of the dialogues")]
#[path = "../dialogues/fixture.rs"]
mod fixture;

mod deadlines;
mod groups;
mod loopback;
mod release;
mod requests;
#[allow(dead_code, reason = "of the dialogues")]
#[path = "../dialogues/start.rs"]
mod start;
#[allow(dead_code, clippy::wildcard_enum_match_arm, reason = "of the dialogues")]
#[path = "../dialogues/states.rs"]
mod states;
mod summary;
#[path = "../dialogues/taken.rs"]
mod taken;
mod values;

use cmid_proto::memory::{Domain, PdState};
use cmid_proto::{Acks, CmEvent, Errno, EventKind, Fault, Limits, RawEvent, RefuseReason, Request, State};

use crate::fixture::{CoreFixture, LISTEN, OK, RESOLVE, cm, connect, to};

#[test]
fn the_id_of_a_request_that_was_moved_stays_also_where_its_listener_came_by() {
    let mut fixture = CoreFixture::new();
    let [here, there, beyond] = [(); 3].map(|()| fixture.channel(Acks::OnDelivery));
    let listener = fixture.id(Some(here));
    fixture.does(listener, LISTEN);
    let child = fixture.report_request(listener);
    fixture.does(child, to(there));
    for channel in [there, beyond] {
        fixture.submit(listener, to(channel)).unwrap();
        fixture.no_call();
        assert_eq!((fixture.core.channel(child), fixture.core.device_channel(child)), (Some(there), Some(there)));
    }
    // The CONNECT_REQUEST is the listener's event.
    fixture.sees(beyond, child, cm(CmEvent::ConnectRequest));
    fixture.report(child, CmEvent::AddrChange);
    fixture.sees(there, child, cm(CmEvent::AddrChange));
    fixture.ends(&[child, listener], &[here, there, beyond]);
}

#[test]
fn events_that_move_can_be_taken_on_the_new_channel() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let there = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(here));
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!([here, there].map(|channel| fixture.core.may_have_event(channel)), [true, false]);
    fixture.does(id, to(there));
    assert!(fixture.core.has_events() && fixture.core.may_have_event(there), "whoever serves it has not looked");
    fixture.sees(there, id, cm(CmEvent::AddrChange));
    assert!(!fixture.core.has_events());
}

#[test]
fn a_migration_that_fails_after_the_acks_has_a_negative_errno_as_status() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.id(Some(here));
    fixture.report(id, CmEvent::AddrChange);
    let event = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, to(there)).unwrap();
    fixture.acks(event);
    fixture.expect_call("migrate_id", Err(Errno::ENOMEM));
    let migrated = fixture.sees(here, id, EventKind::Migrated);
    assert_eq!((migrated.status, migrated.result()), (-Errno::ENOMEM.0, Err(Errno::ENOMEM)));
}

#[test]
fn a_destruction_that_fails_after_the_acks_has_a_negative_errno_as_status() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let id = fixture.id(Some(here));
    fixture.report(id, CmEvent::AddrChange);
    let event = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.acks(event);
    fixture.expect_call("destroy_id", Err(Errno::EBUSY));
    assert_eq!(fixture.sees(here, id, EventKind::Destroyed).status, -Errno::EBUSY.0);
    assert_eq!(fixture.state(id), State::Failed);
}

#[test]
fn a_request_is_delivered_where_the_device_has_moved_its_listener() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let listener = fixture.id(Some(here));
    fixture.does(listener, LISTEN);
    let child = fixture.report_request(listener);
    // A listener without its device migrates like any other id.
    let device_channel = fixture.core.device_channel(listener).unwrap();
    fixture.report_on(device_channel, fixture::raw(listener, CmEvent::DeviceRemoval, 0));
    fixture.submit(listener, to(there)).unwrap();
    fixture.expect_call("migrate_id", OK);
    fixture.all_well();
    fixture.no_event(here);
    fixture.sees(there, child, cm(CmEvent::ConnectRequest));
    fixture.sees(there, listener, cm(CmEvent::DeviceRemoval));
}

#[test]
fn an_id_with_a_qp_is_established_by_the_library_alone() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(here, State::Bound);
    fixture.does(id, Request::AttachQp);
    fixture.does(id, RESOLVE);
    fixture.report_and_take(id, CmEvent::AddrResolved);
    fixture.does(id, Request::ResolveRoute);
    fixture.report_and_take(id, CmEvent::RouteResolved);
    fixture.does(id, connect());
    // No library reports this event here, but the core does not depend on that.
    fixture.report_and_take(id, CmEvent::ConnectResponse);
    fixture.refuses(id, Request::Establish, RefuseReason::HasQp);
}

#[test]
fn an_id_listens_only_where_there_is_room_for_its_channel() {
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let here = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(here));
    fixture.refuses(id, LISTEN, RefuseReason::NoChannelLeft);
}

#[test]
fn a_request_on_a_channel_that_is_being_closed_is_a_fault() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let listener = fixture.in_state(here, State::Listening);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    fixture.submit(listener, Request::Destroy).unwrap();
    fixture.expect_call("destroy_id", OK);
    fixture.takes_call("destroy_event_channel");
    // The core accepts no event on this channel, so the key is from another channel.
    assert_eq!(fixture.core.wants_event(device_channel), None);
    let child = fixture.core.wants_event(here).unwrap();
    let request = RawEvent { listener: Some(listener), ..fixture::raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(
        fixture.core.handle_event(device_channel, request),
        Err(Fault::NoSuchChannel { channel: device_channel })
    );
    fixture.core.check();
    fixture.answers(OK);
    assert_eq!((fixture.core.ids().count(), fixture.core.channels().count()), (0, 1));
}

#[test]
fn a_call_is_made_with_its_own_private_data() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let ids = [(); 2].map(|()| fixture.in_state(here, State::RouteResolved));
    let with = |private_data| Request::Connect { param: fixture::param(), private_data };
    for (id, data) in ids.into_iter().zip([&b"one"[..], b"two"]) {
        fixture.submit(id, with(data)).unwrap();
        assert_eq!(fixture.takes_call("connect").id(), Some(id));
        assert_eq!(fixture.call_data(), data);
        fixture.answers(OK);
    }
}

#[test]
fn an_idle_id_that_found_no_route_is_bound() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(Some(here));
    fixture.submit(id, RESOLVE).unwrap();
    fixture.expect_call("resolve_addr", Err(Errno::ENETUNREACH));
    assert_eq!(fixture.state(id), State::Bound);
    // After another errno the state is unchanged.
    let id = fixture.id(Some(here));
    fixture.submit(id, RESOLVE).unwrap();
    fixture.expect_call("resolve_addr", Err(Errno::EINVAL));
    assert_eq!(fixture.state(id), State::Idle);
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
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let [first, second, third] = [(); 3].map(|()| fixture.id(Some(here)));
    for id in [first, second, third] {
        fixture.report(id, CmEvent::AddrChange);
    }
    for id in [second, third] {
        fixture.does(id, Request::Destroy);
    }
    fixture.sees(here, first, cm(CmEvent::AddrChange));
    fixture.ends(&[first], &[here]);
}

#[test]
fn an_id_does_not_listen_while_one_ack_is_owed() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let id = fixture.id(Some(here));
    fixture.report(id, CmEvent::AddrChange);
    let event = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.refuses(id, LISTEN, RefuseReason::OwesAcks);
    fixture.acks(event);
    fixture.does(id, LISTEN);
    fixture.ends(&[id], &[here]);
}

/// An accept first migrates the id.
#[test]
fn only_the_call_of_a_request_that_sends_it_has_its_private_data() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let listener = fixture.in_state(here, State::Listening);
    let id = fixture.report_request(listener);
    fixture.sees(here, id, cm(CmEvent::ConnectRequest));
    fixture.submit(id, fixture::accept()).unwrap();
    fixture.takes_call("migrate_id");
    assert_eq!(fixture.call_data(), b"");
    fixture.answers(OK);
    fixture.takes_call("accept");
    assert_eq!(fixture.call_data(), b"welcome");
    fixture.answers(OK);
    fixture.ends(&[id, listener], &[here]);
}
