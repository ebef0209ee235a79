//! Deadlines of every operation, and events that arrive after them.

use std::time::Duration;

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Request, RequestKind, State, Time};

use crate::fixture::{CoreFixture, RESOLVE, SOON, accept, cm, connect, to};

#[test]
fn every_operation_ends_at_its_deadline_and_what_comes_later_is_late() {
    let cases = [
        (State::Bound, RESOLVE, RequestKind::ResolveAddr, State::Failed, CmEvent::AddrResolved),
        (State::AddrResolved, Request::ResolveRoute, RequestKind::ResolveRoute, State::Failed, CmEvent::RouteResolved),
        (State::RouteResolved, connect(), RequestKind::Connect, State::Failed, CmEvent::Established),
        (State::Requested, accept(), RequestKind::Accept, State::Failed, CmEvent::Established),
        (State::Connected, Request::Disconnect, RequestKind::Disconnect, State::TimeWait, CmEvent::Disconnected),
    ];
    for (from, request, request_kind, after, late) in cases {
        let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, from);
        let deadline = fixture.does_soon(id, request);
        assert_eq!(fixture.core.poll_timeout(), Some((deadline, id)));
        fixture.passes(SOON - Duration::from_nanos(1));
        fixture.no_event(channel);
        fixture.passes(Duration::from_nanos(1));
        let event = fixture.expect_event(channel, id, EventKind::DeadlinePassed(request_kind));
        assert_eq!((event.result(), event.ack_token), (Err(Errno::ETIMEDOUT), None));
        assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (after, None));
        assert_eq!(fixture.report(id, late), Admission::Late);
        fixture.no_event(channel);
        assert_eq!(fixture.core.summary().counters.late, 1);
        let listeners: Vec<_> = fixture.core.channel(id).into_iter().collect();
        assert_eq!(listeners, [channel]);
    }
}

#[test]
fn a_deadline_goes_with_its_operation_however_that_ends() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    let deadline = fixture.within(SOON);
    fixture.submit_until(id, RESOLVE, deadline).unwrap();
    fixture.expect_call("resolve_addr", Err(Errno::EADDRNOTAVAIL));
    assert_eq!(fixture.core.poll_timeout(), None, "the call failed");
    fixture.does_until(id, RESOLVE, deadline);
    fixture.report_and_take(id, CmEvent::AddrResolved);
    assert_eq!(fixture.core.poll_timeout(), None, "the event came");
    fixture.does_until(id, Request::ResolveRoute, deadline);
    fixture.does(id, Request::Destroy);
    assert_eq!(fixture.core.poll_timeout(), None, "the id is gone");
}

#[test]
fn the_nearest_deadline_is_first_and_each_id_has_one() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let ids: Vec<_> = (0..6).map(|_| fixture.id(Some(channel))).collect();
    let spans = [5, 1, 4, 2, 6, 3];
    for (&id, ms) in ids.iter().zip(spans) {
        let deadline = fixture.within(Duration::from_millis(ms));
        fixture.does_until(id, RESOLVE, deadline);
    }
    fixture.does(ids[3], Request::Destroy);
    fixture.report_and_take(ids[5], CmEvent::AddrResolved);
    for expected in [ids[1], ids[2], ids[0], ids[4]] {
        let (due, id) = fixture.core.poll_timeout().unwrap();
        assert_eq!(id, expected);
        let span = due.since(fixture.now);
        fixture.passes(span);
        fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
        fixture.no_event(channel);
    }
}

#[test]
fn a_migration_that_waits_for_acks_gives_up_at_its_deadline_and_the_operation_goes_on() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Bound);
    let (soon, later) = (fixture.within(SOON), fixture.within(SOON * 2));
    fixture.does_until(id, RESOLVE, later);
    let held = fixture.owes(here, id);
    fixture.submit_until(id, to(there), soon).unwrap();
    assert_eq!(fixture.core.poll_timeout(), Some((soon, id)));
    fixture.passes(SOON);
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.core.poll_timeout(), Some((later, id)));
    fixture.acks(held);
    fixture.no_call();
    fixture.report(id, CmEvent::AddrResolved);
    fixture.sees(here, id, cm(CmEvent::AddrResolved));
}

#[test]
fn both_deadlines_of_an_id_may_pass_at_once() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let soon = fixture.does_soon(id, RESOLVE);
    let held = fixture.owes(here, id);
    fixture.submit_until(id, crate::fixture::TO_SYNC, soon).unwrap();
    fixture.passes(SOON);
    fixture.sees(here, id, EventKind::Migrated);
    fixture.sees(here, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    fixture.acks(held);
}

#[test]
fn a_destroy_that_waits_for_acks_gives_up_at_its_deadline_and_can_be_requested_again() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
    let held = fixture.owes(channel, id);
    let soon = fixture.within(SOON);
    fixture.submit_until(id, Request::Destroy, soon).unwrap();
    fixture.passes(SOON);
    assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.state(id), State::Failed);
    fixture.acks(held);
    fixture.no_call();
}

#[test]
fn a_migrated_operation_keeps_its_deadline() {
    let (mut fixture, [_here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::RouteResolved);
    fixture.does_soon(id, connect());
    fixture.does(id, to(there));
    fixture.passes(SOON);
    fixture.sees(there, id, EventKind::DeadlinePassed(RequestKind::Connect));
}

#[test]
fn the_end_of_time_is_no_deadline() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let last = Time(u64::MAX - 1);
    fixture.does_until(id, RESOLVE, last);
    fixture.core.handle_timeout(Time::NEVER);
    fixture.core.check();
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
}
