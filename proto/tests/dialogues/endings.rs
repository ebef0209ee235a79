//! A destroy that waits for acks ends all other requests of its id, also if it then gives up at its deadline.

use cmid_proto::{Acks, Admission, ChannelKey, CmEvent, Errno, EventKind, IdKey, RefuseReason, Request, State};

use crate::fixture::{CoreFixture, OK, RESOLVE, SOON, TO_SYNC, accept, connect, to};

/// A destroy waits for acks until its deadline. Only its end is reported.
fn gives_up(fixture: &mut CoreFixture, on: ChannelKey, id: IdKey) {
    let soon = fixture.within(SOON);
    fixture.submit_until(id, Request::Destroy, soon).unwrap();
    fixture.no_call();
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Destroying, Some((soon, id))));
    fixture.passes(SOON);
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Failed, None));
    assert_eq!(fixture.sees(on, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    fixture.no_event(on);
}

#[test]
fn after_a_destroy_gave_up_no_operation_of_the_id_ends_and_its_events_are_late() {
    let operations = [
        (State::Bound, RESOLVE, CmEvent::AddrResolved),
        (State::AddrResolved, Request::ResolveRoute, CmEvent::RouteResolved),
        (State::RouteResolved, connect(), CmEvent::Established),
        (State::Requested, accept(), CmEvent::Established),
        (State::Connected, Request::Disconnect, CmEvent::Disconnected),
        (State::Connected, Request::Teardown, CmEvent::TimewaitExit),
    ];
    for (from, request, end) in operations {
        let (mut fixture, here, id) = CoreFixture::with_id(Acks::Explicit, from);
        let later = fixture.within(SOON * 2);
        fixture.does_until(id, request, later);
        let held = fixture.owes(here, id);
        gives_up(&mut fixture, here, id);
        fixture.passes(SOON * 2);
        assert_eq!(fixture.report(id, end), Admission::Late, "{request:?}");
        fixture.acks(held);
        fixture.no_call();
        fixture.no_event(here);
    }
}

#[test]
fn after_a_destroy_gave_up_a_migration_that_waited_too_is_not_made() {
    for sync in [false, true] {
        let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Connected);
        let held = fixture.owes(here, id);
        fixture.submit(id, if sync { TO_SYNC } else { to(there) }).unwrap();
        gives_up(&mut fixture, here, id);
        fixture.acks(held);
        fixture.no_call();
        fixture.no_event(here);
        assert_eq!((fixture.core.channel(id), fixture.core.channels().count()), (Some(here), 2));
        // It can be requested again.
        fixture.does(id, to(there));
        assert_eq!(fixture.core.channel(id), Some(there));
    }
}

#[test]
fn a_join_that_a_destroy_has_ended_leaves_a_membership_to_be_left() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let (id, group) = fixture.joining(here);
        let held = fixture.owes(here, id);
        gives_up(&mut fixture, here, id);
        fixture.acks(held);
        fixture.submit(id, Request::Leave { group }).unwrap();
        assert_eq!(fixture.expect_call("leave_multicast", outcome).unwrap().result.is_ok(), outcome.is_ok());
        assert_eq!(fixture.core.summary().groups, 0);
    }
}

/// The device does not migrate a listening id.
#[test]
fn a_listener_whose_destroy_gave_up_listens_all_the_same() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Listening);
    let device_channel = fixture.core.device_channel(id);
    let held = fixture.owes(here, id);
    gives_up(&mut fixture, here, id);
    fixture.acks(held);
    fixture.submit(id, to(there)).unwrap();
    fixture.no_call();
    assert_eq!(fixture.channels_of(id), (Some(there), device_channel));
}

#[test]
fn the_id_of_a_request_whose_destroy_gave_up_is_still_on_its_listeners_channel() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let (listener, child) = fixture.requested(here);
    let device_channel = fixture.core.device_channel(listener);
    let held = fixture.owes(here, child);
    gives_up(&mut fixture, here, child);
    assert_eq!(fixture.channels_of(child), (Some(here), device_channel));
    fixture.acks(held);
    fixture.refuses(child, accept(), RefuseReason::WrongState);
}

#[test]
fn a_destroy_that_gave_up_can_be_requested_again_before_the_ack() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
    let held = fixture.owes(here, id);
    gives_up(&mut fixture, here, id);
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.refuses(id, Request::Destroy, RefuseReason::WrongState);
    fixture.acks(held);
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
    assert_eq!(fixture.sees(here, id, EventKind::Destroyed).result(), Ok(()));
    fixture.no_event(here);
}
