//! Leaving a group: which acks a leave waits for, and which other requests conflict with it.

use cmid_proto::info::WaitsFor;
use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, RefuseReason, Request, RequestKind, State, Time};

use super::{JOINED, LOST, SOON, at, begins, bound, bound_on, join, leave, member, report};
use crate::fixture::{CoreFixture, OK, cm, to};

#[test]
fn a_leave_discards_the_undelivered_events_of_its_group_and_no_others() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let [one, two] = [1, 2].map(|last| begins(&mut fixture, id, last, Time::NEVER));
    fixture.report_status(id, CmEvent::AddrChange, 1);
    report(&mut fixture, id, one, JOINED, 0);
    report(&mut fixture, id, two, JOINED, 0);
    report(&mut fixture, id, one, LOST, -1);
    fixture.report_status(id, CmEvent::AddrChange, 2);
    fixture.submit(id, leave(one)).unwrap();
    assert!(fixture.expect_call("leave_multicast", OK).is_some());
    assert_eq!(fixture.core.summary().counters.discarded, 2);
    assert_eq!(report(&mut fixture, id, one, LOST, -1), Admission::Late, "it is left");
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrChange)).status, 1);
    assert_eq!(fixture.sees(channel, id, cm(JOINED)).group, Some(two));
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrChange)).status, 2);
    fixture.no_event(channel);
}

#[test]
fn a_leave_that_waits_for_acks_discards_the_undelivered_events_at_once() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let group = begins(&mut fixture, id, 1, Time::NEVER);
    report(&mut fixture, id, group, JOINED, 0);
    let held = fixture.expect_event(channel, id, cm(JOINED));
    report(&mut fixture, id, group, LOST, -1);
    fixture.submit(id, leave(group)).unwrap();
    fixture.no_event(channel);
    fixture.acks(held);
    fixture.expect_call("leave_multicast", OK);
    fixture.sees(channel, id, EventKind::Left);
}

#[test]
fn a_leave_waits_for_the_acks_of_its_group_only_and_ends_by_event() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut fixture, channel, id) = bound_on(Acks::Explicit);
        let [one, two] = [1, 2].map(|last| begins(&mut fixture, id, last, Time::NEVER));
        for group in [one, two] {
            report(&mut fixture, id, group, JOINED, 0);
        }
        report(&mut fixture, id, one, LOST, -1);
        fixture.report(id, CmEvent::AddrChange);
        let [joined, other, lost] = [JOINED, JOINED, LOST].map(|kind| fixture.expect_event(channel, id, cm(kind)));
        let own = fixture.expect_event(channel, id, cm(CmEvent::AddrChange));
        assert_eq!(fixture.owed(id), 4);
        fixture.submit(id, leave(one)).unwrap();
        assert!(fixture.core.waiting().any(|it| it == (id, WaitsFor::Acks(RequestKind::Leave))));
        fixture.no_call();
        // Until then the membership exists, but cannot be left again.
        fixture.refuses(id, leave(one), RefuseReason::NoSuchGroup(one));
        fixture.refuses(id, join(1), RefuseReason::AlreadyMember(at(1)));
        fixture.acks(lost);
        fixture.no_call();
        fixture.acks(joined);
        assert_eq!(fixture.expect_call("leave_multicast", outcome), None, "it ends by event");
        let event = fixture.sees(channel, id, EventKind::Left);
        assert_eq!((event.group, event.result(), &event.ack_token), (Some(one), outcome, &None));
        assert_eq!((fixture.core.group_at(id, at(1)), fixture.owed(id)), (None, 2));
        assert!(!fixture.core.waiting().any(|it| it == (id, WaitsFor::Acks(RequestKind::Leave))));
        fixture.acks(other);
        fixture.acks(own);
    }
}

#[test]
fn a_leave_goes_at_once_while_only_other_events_of_the_id_are_not_acked() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let [one, two] = [1, 2].map(|last| begins(&mut fixture, id, last, Time::NEVER));
    report(&mut fixture, id, two, JOINED, 0);
    fixture.report(id, CmEvent::AddrChange);
    let held = [JOINED, CmEvent::AddrChange].map(|kind| fixture.expect_event(channel, id, cm(kind)));
    assert!(fixture.makes(id, leave(one), "leave_multicast").unwrap().result.is_ok());
    fixture.no_event(channel);
    held.into_iter().for_each(|event| fixture.acks(event));
}

#[test]
fn a_leave_that_fails_has_left() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let group = member(&mut fixture, channel, id, 1);
    let failure = fixture.fails(id, leave(group), "leave_multicast", Errno::EADDRNOTAVAIL);
    assert_eq!((failure.call, failure.errno), ("leave_multicast", Errno::EADDRNOTAVAIL));
    assert_eq!(fixture.core.summary().groups, 0);
}

#[test]
fn a_channel_is_read_after_a_leave_that_fails() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let [one, two] = [1, 2].map(|last| member(&mut fixture, channel, id, last));
    fixture.does(id, leave(one));
    assert_eq!(fixture.core.poll_readable(), None);
    fixture.fails(id, leave(two), "leave_multicast", Errno::ENXIO);
    assert_eq!(fixture.core.poll_readable(), Some(channel));
}

#[test]
fn two_leaves_that_wait_go_one_after_the_other() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let groups = [1, 2, 3].map(|last| begins(&mut fixture, id, last, Time::NEVER));
    for group in groups {
        report(&mut fixture, id, group, JOINED, 0);
    }
    let [first, second, third] = groups.map(|_| fixture.expect_event(channel, id, cm(JOINED)));
    for group in &groups[..2] {
        fixture.submit(id, leave(*group)).unwrap();
    }
    fixture.acks(first);
    fixture.takes_call("leave_multicast");
    fixture.acks(second);
    fixture.expect_call("leave_multicast", OK);
    fixture.expect_call("leave_multicast", OK);
    for group in &groups[..2] {
        assert_eq!(fixture.sees(channel, id, EventKind::Left).group, Some(*group));
    }
    fixture.no_call();
    fixture.acks(third);
    assert_eq!(fixture.core.summary().groups, 1);
}

#[test]
fn a_leave_that_waits_for_acks_holds_up_no_other_request() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let [one, two] = [1, 2].map(|last| begins(&mut fixture, id, last, Time::NEVER));
    report(&mut fixture, id, one, JOINED, 0);
    let held = fixture.expect_event(channel, id, cm(JOINED));
    fixture.submit(id, leave(one)).unwrap();
    assert_eq!(report(&mut fixture, id, one, LOST, -1), Admission::Late, "while it is being left");
    fixture.does(id, crate::fixture::RESOLVE);
    fixture.acks(held);
    fixture.does(id, leave(two));
    assert_eq!(fixture.sees(channel, id, EventKind::Left).group, Some(one));
    fixture.no_event(channel);
    assert_eq!(fixture.core.summary().groups, 0);
}

#[test]
fn a_leave_that_waits_for_acks_does_not_wait_for_those_of_a_migration() {
    for moves in [false, true] {
        let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
        let id = bound(&mut fixture, Some(here));
        let group = begins(&mut fixture, id, 1, Time::NEVER);
        report(&mut fixture, id, group, JOINED, 0);
        fixture.report(id, CmEvent::AddrChange);
        let [joined, own] = [JOINED, CmEvent::AddrChange].map(|kind| fixture.expect_event(here, id, cm(kind)));
        fixture.submit(id, leave(group)).unwrap();
        let soon = fixture.within(SOON);
        fixture.submit_until(id, to(there), soon).unwrap();
        fixture.refuses(id, join(2), RefuseReason::Busy(RequestKind::Migrate));
        fixture.acks(joined);
        fixture.takes_call("leave_multicast");
        if moves {
            // The acks for the migration arrive before the leave is made.
            fixture.acks(own);
            assert_eq!(fixture.expect_call("leave_multicast", OK), None);
            fixture.expect_call("migrate_id", OK);
            fixture.sees(there, id, EventKind::Migrated);
            fixture.sees(there, id, EventKind::Left);
        } else {
            fixture.passes(SOON);
            assert_eq!(fixture.answers(OK), None);
            fixture.acks(own);
            fixture.sees(here, id, EventKind::Migrated);
            fixture.sees(here, id, EventKind::Left);
        }
        fixture.no_call();
    }
}

#[test]
fn a_leave_that_waited_ends_with_a_destroy_and_can_be_requested_again_when_that_gives_up() {
    for fails in [false, true] {
        let (mut fixture, channel, id) = bound_on(Acks::Explicit);
        let [group, other] = [1, 2].map(|last| begins(&mut fixture, id, last, Time::NEVER));
        for group in [group, other] {
            report(&mut fixture, id, group, JOINED, 0);
        }
        fixture.report(id, CmEvent::AddrChange);
        let [joined, others, own] =
            [JOINED, JOINED, CmEvent::AddrChange].map(|kind| fixture.expect_event(channel, id, cm(kind)));
        fixture.submit(id, leave(group)).unwrap();
        fixture.refuses(id, leave(group), RefuseReason::NoSuchGroup(group));
        fixture.submit(id, leave(other)).unwrap();
        let soon = fixture.within(SOON);
        fixture.submit_until(id, Request::Destroy, soon).unwrap();
        assert!(!fixture.core.waiting().any(|it| it == (id, WaitsFor::Acks(RequestKind::Leave))));
        fixture.acks(joined);
        fixture.acks(others);
        fixture.no_call();
        if fails {
            fixture.acks(own);
            fixture.expect_call("destroy_id", Err(Errno::EBADF));
        } else {
            fixture.passes(SOON);
            fixture.acks(own);
        }
        fixture.sees(channel, id, EventKind::Destroyed);
        fixture.no_call();
        fixture.no_event(channel);
        assert_eq!((fixture.state(id), fixture.core.summary().groups), (State::Failed, 2));
        assert_eq!(fixture.makes(id, leave(group), "leave_multicast").unwrap().result, Ok(()));
        fixture.no_event(channel);
    }
}
