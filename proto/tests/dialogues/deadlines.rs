//! Deadlines of every operation, and events that arrive after them.

use std::time::Duration;

use cmid_proto::{Acks, CmEvent, Errno, EventKind, Request, RequestKind, State, Time};

use crate::fixture::{CoreFixture, RESOLVE, SOON, cm, to};

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
    let passed = fixture.expect_event(here, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    assert_eq!(passed.ack_token, None);
    fixture.acks(held);
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
