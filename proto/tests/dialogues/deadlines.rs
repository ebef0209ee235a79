//! A deadline on every operation, and what comes late.

use std::time::Duration;

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Request, State, Time, Verb};

use crate::fixture::{OK, RESOLVE, Stage, accept, cm, connect, to};

const SOON: Duration = Duration::from_millis(2);

#[test]
fn every_operation_ends_at_its_deadline_and_what_comes_later_is_late() {
    let cases = [
        (State::Bound, RESOLVE, Verb::ResolveAddr, State::Failed, CmEvent::AddrResolved),
        (State::AddrResolved, Request::ResolveRoute, Verb::ResolveRoute, State::Failed, CmEvent::RouteResolved),
        (State::RouteResolved, connect(), Verb::Connect, State::Failed, CmEvent::Established),
        (State::Requested, accept(), Verb::Accept, State::Failed, CmEvent::Established),
        (State::Connected, Request::Disconnect, Verb::Disconnect, State::TimeWait, CmEvent::Disconnected),
    ];
    for (from, request, verb, after, late) in cases {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = stage.in_state(channel, from);
        let deadline = stage.within(SOON);
        stage.does_until(id, request, deadline);
        assert_eq!(stage.core.poll_timeout(), Some((deadline, id)));
        stage.passes(SOON - Duration::from_nanos(1));
        stage.no_event(channel);
        stage.passes(Duration::from_nanos(1));
        let event = stage.expect_event(channel, id, EventKind::DeadlinePassed(verb));
        assert_eq!((event.result(), event.receipt), (Err(Errno::ETIMEDOUT), None));
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (after, None));
        assert_eq!(stage.says(id, late), Admission::Late);
        stage.no_event(channel);
        assert_eq!(stage.core.counters().late, 1);
        let listeners: Vec<_> = stage.core.home(id).into_iter().collect();
        assert_eq!(listeners, [channel]);
    }
}

#[test]
fn a_deadline_goes_with_its_operation_however_that_ends() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    let deadline = stage.within(SOON);
    stage.asks_until(id, RESOLVE, deadline).unwrap();
    stage.expect_call("resolve_addr", Err(Errno::EADDRNOTAVAIL));
    assert_eq!(stage.core.poll_timeout(), None, "the call failed");
    stage.does_until(id, RESOLVE, deadline);
    stage.tells(id, CmEvent::AddrResolved);
    assert_eq!(stage.core.poll_timeout(), None, "the event came");
    stage.does_until(id, Request::ResolveRoute, deadline);
    stage.does(id, Request::Destroy);
    assert_eq!(stage.core.poll_timeout(), None, "the id is gone");
    stage.ends(&[], &[channel]);
}

#[test]
fn the_kernel_is_told_the_same_deadline_in_milliseconds_rounded_up() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    let deadline = stage.now.after(Duration::from_nanos(1));
    stage.asks_until(id, RESOLVE, deadline).unwrap();
    let (_, call) = stage.takes_call("resolve_addr");
    assert!(matches!(call, cmid_proto::Call::ResolveAddr { timeout_ms: 1, .. }), "{call:?}");
}

#[test]
fn the_nearest_deadline_is_first_and_each_id_has_one() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let ids: Vec<_> = (0..6).map(|_| stage.id(Some(channel))).collect();
    let spans = [5, 1, 4, 2, 6, 3];
    for (&id, ms) in ids.iter().zip(spans) {
        let deadline = stage.within(Duration::from_millis(ms));
        stage.does_until(id, RESOLVE, deadline);
    }
    stage.does(ids[3], Request::Destroy);
    stage.tells(ids[5], CmEvent::AddrResolved);
    for expected in [ids[1], ids[2], ids[0], ids[4]] {
        let (due, id) = stage.core.poll_timeout().unwrap();
        assert_eq!(id, expected);
        let span = due.since(stage.now);
        stage.passes(span);
        stage.sees(channel, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
        stage.no_event(channel);
    }
    stage.ends(&ids, &[channel]);
}

#[test]
fn a_migration_that_waits_for_acks_gives_up_at_its_deadline_and_the_operation_goes_on() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Bound);
    let (soon, later) = (stage.within(SOON), stage.within(SOON * 2));
    stage.does_until(id, RESOLVE, later);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks_until(id, to(there), soon).unwrap();
    assert_eq!(stage.core.poll_timeout(), Some((soon, id)));
    stage.passes(SOON);
    assert_eq!(stage.sees(here, id, EventKind::Migrated).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(stage.core.poll_timeout(), Some((later, id)));
    stage.acks(held);
    stage.no_call();
    stage.says(id, CmEvent::AddrResolved);
    stage.sees(here, id, cm(CmEvent::AddrResolved));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn both_deadlines_of_an_id_may_pass_at_once() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.in_state(here, State::Bound);
    let soon = stage.within(SOON);
    stage.does_until(id, RESOLVE, soon);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks_until(id, crate::fixture::TO_SYNC, soon).unwrap();
    stage.passes(SOON);
    stage.sees(here, id, EventKind::Migrated);
    stage.sees(here, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
    stage.acks(held);
    stage.ends(&[id], &[here]);
}

#[test]
fn a_destroy_that_waits_for_acks_gives_up_at_its_deadline_and_can_be_asked_for_again() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
    let soon = stage.within(SOON);
    stage.asks_until(id, Request::Destroy, soon).unwrap();
    stage.passes(SOON);
    assert_eq!(stage.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(stage.state(id), State::Failed);
    stage.acks(held);
    stage.no_call();
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_deadline_may_pass_before_the_call_returns_and_the_request_ends_once() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::RouteResolved);
        let soon = stage.within(SOON);
        stage.asks_until(id, connect(), soon).unwrap();
        let (token, _) = stage.takes_call("connect");
        stage.passes(SOON);
        let ended = stage.answers(token, outcome).unwrap();
        assert_eq!(ended.result, Ok(()), "the event is its end");
        stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Connect));
        assert_eq!(stage.state(id), State::Failed);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_migrated_operation_keeps_its_deadline() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::RouteResolved);
    let soon = stage.within(SOON);
    stage.does_until(id, connect(), soon);
    stage.does(id, to(there));
    stage.passes(SOON);
    stage.sees(there, id, EventKind::DeadlinePassed(Verb::Connect));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn the_end_of_time_is_no_deadline() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Bound);
    let last = Time(u64::MAX - 1);
    stage.does_until(id, RESOLVE, last);
    stage.core.handle_timeout(Time::NEVER);
    stage.core.check();
    stage.sees(channel, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
    stage.ends(&[id], &[channel]);
}
