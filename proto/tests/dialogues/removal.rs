//! Device removal in every state and during every operation.

use cmid_proto::{Acks, Admission, ChannelKey, CmEvent, Errno, EventKind, IdKey, RawEvent, Request, State};

use crate::fixture::{CoreFixture, OK, RESOLVE, SOON, TO_SYNC, accept, cm, connect, raw, to};

const GONE: CmEvent = CmEvent::DeviceRemoval;

fn living() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|state| !matches!(state, State::Removed | State::Destroying))
}

/// Each operation, and the state in which it starts.
fn operations() -> [(State, Request<'static>); 6] {
    [
        (State::Bound, RESOLVE),
        (State::AddrResolved, Request::ResolveRoute),
        (State::RouteResolved, connect()),
        (State::Requested, accept()),
        (State::Connected, Request::Disconnect),
        (State::Connected, Request::Teardown),
    ]
}

/// Asserts that the id can only be destroyed, and destroys it.
fn is_over(fixture: &mut CoreFixture, id: IdKey, on: ChannelKey) {
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Removed, None));
    for kind in [CmEvent::Established, CmEvent::Disconnected, CmEvent::TimewaitExit, GONE] {
        assert_eq!(fixture.report(id, kind), Admission::Late);
    }
    fixture.no_event(on);
    fixture.does(id, Request::Destroy);
    assert_eq!(fixture.core.state(id), None);
}

#[test]
fn every_operation_ends_by_the_removal() {
    for (from, request) in operations() {
        let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        fixture.does_soon(id, request);
        fixture.report(id, GONE);
        fixture.sees(channel, id, cm(GONE));
        fixture.passes(SOON);
        is_over(&mut fixture, id, channel);
    }
}

#[test]
fn every_synchronous_wait_ends_with_enodev() {
    for (from, request) in operations() {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        fixture.does(id, TO_SYNC);
        let private = fixture.core.channel(id).unwrap();
        fixture.does_soon(id, request);
        fixture.report(id, GONE);
        assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ENODEV)), "{}", request.request_kind());
        assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(GONE));
        is_over(&mut fixture, id, private);
    }
}

/// The device of a removed id may migrate it yet or refuse to.
#[test]
fn a_migration_after_a_removal_ends_with_the_outcome_of_its_call() {
    for state in living() {
        for outcome in [OK, Err(Errno::ENXIO)] {
            let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, state);
            fixture.report(id, GONE);
            fixture.submit(id, to(there)).unwrap();
            let ended = fixture.expect_call("migrate_id", outcome).unwrap();
            assert_eq!(ended.result.map_err(|failure| failure.state), outcome.map_err(|_| State::Removed), "{state}");
            let home = if outcome.is_ok() { there } else { here };
            fixture.sees(home, id, cm(GONE));
            is_over(&mut fixture, id, home);
        }
    }
}

#[test]
fn a_migration_that_waits_for_acks_is_made_and_may_fail() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Connected);
    let held = fixture.owes(here, id);
    fixture.submit(id, to(there)).unwrap();
    fixture.report(id, GONE);
    fixture.acks(held);
    fixture.expect_call("migrate_id", Err(Errno::ENXIO));
    fixture.sees(here, id, cm(GONE));
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::ENXIO));
    is_over(&mut fixture, id, here);
}

#[test]
fn a_listener_that_is_removed_still_has_the_requests_that_came_before() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::Explicit, State::Listening);
    let child = fixture.report_request(listener);
    fixture.report(listener, GONE);
    fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
    fixture.sees(channel, listener, cm(GONE));
    fixture.makes(child, accept(), "migrate_id");
    fixture.expect_call("accept", Err(Errno::ENXIO));
    assert_eq!(fixture.state(child), State::Failed);
    // A request after the removal has no listener.
    let late = fixture.core.wants_event(channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(late, CmEvent::ConnectRequest, 0) };
    assert_eq!(fixture.report_on(channel, request), Admission::Late);
    fixture.all_well();
    assert_eq!(fixture.core.state(late), None);
}

#[test]
fn an_address_that_was_not_read_before_the_removal_is_an_error_and_then_the_removal() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::AddrResolving);
    // The library's query for the device fails, so it turns ADDR_RESOLVED into ADDR_ERROR.
    fixture.report_status(id, CmEvent::AddrError, -1);
    fixture.report(id, GONE);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrError)).result(), Err(Errno::EPERM));
    fixture.sees(channel, id, cm(GONE));
    is_over(&mut fixture, id, channel);
}

#[test]
fn a_destroy_that_waits_or_is_due_takes_no_notice() {
    for waits in [true, false] {
        let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
        let held = fixture.owes(channel, id);
        fixture.submit(id, Request::Destroy).unwrap();
        if waits {
            assert_eq!(fixture.report(id, GONE), Admission::Late);
            fixture.acks(held);
            fixture.expect_call("destroy_id", OK);
        } else {
            fixture.acks(held);
            fixture.takes_call("destroy_id");
            assert_eq!(fixture.report(id, GONE), Admission::Late);
            assert_eq!(fixture.expect_call("destroy_id", OK), None);
        }
        fixture.sees(channel, id, EventKind::Destroyed);
    }
}
