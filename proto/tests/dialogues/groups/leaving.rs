//! Leaving a group: whose acks are waited for, and what else may be in the way.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Request, State, Time, Verb, Why};

use super::{JOINED, LOST, SOON, at, begins, bound, join, leave, member, says};
use crate::fixture::{OK, Stage, cm, to};

#[test]
fn a_leave_discards_the_undelivered_events_of_its_group_and_no_others() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let [one, two] = [1, 2].map(|last| begins(&mut stage, id, last, Time::NEVER));
    stage.says_status(id, CmEvent::AddrChange, 1);
    says(&mut stage, id, one, JOINED, 0);
    says(&mut stage, id, two, JOINED, 0);
    says(&mut stage, id, one, LOST, -1);
    stage.says_status(id, CmEvent::AddrChange, 2);
    stage.asks(id, leave(one)).unwrap();
    assert_eq!(stage.core.counters().discarded, 2);
    let (token, _) = stage.takes_call("leave_multicast");
    assert_eq!(says(&mut stage, id, one, LOST, -1), Admission::Late, "while it is being left");
    assert!(stage.answers(token, OK).is_some());
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrChange)).status, 1);
    assert_eq!(stage.sees(channel, id, cm(JOINED)).group, Some(two));
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrChange)).status, 2);
    stage.no_event(channel);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_leave_waits_for_the_acks_of_its_group_only_and_ends_by_event() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = bound(&mut stage, Some(channel));
        let [one, two] = [1, 2].map(|last| begins(&mut stage, id, last, Time::NEVER));
        for group in [one, two] {
            says(&mut stage, id, group, JOINED, 0);
        }
        says(&mut stage, id, one, LOST, -1);
        stage.says(id, CmEvent::AddrChange);
        let [joined, other, lost] = [JOINED, JOINED, LOST].map(|kind| stage.expect_event(channel, id, cm(kind)));
        let own = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
        assert_eq!(stage.core.owed(id), 4);
        stage.asks(id, leave(one)).unwrap();
        assert!(stage.core.waits_for_acks(id, Verb::Leave));
        stage.no_call();
        // Until then it is a membership still, and cannot be left twice.
        stage.refuses(id, leave(one), Why::NoSuchGroup(one));
        stage.refuses(id, join(1), Why::AlreadyMember(at(1)));
        stage.acks(lost);
        stage.no_call();
        stage.acks(joined);
        assert_eq!(stage.expect_call("leave_multicast", outcome), None, "it ends by event");
        let event = stage.sees(channel, id, EventKind::Left);
        assert_eq!((event.group, event.result(), &event.receipt), (Some(one), outcome, &None));
        assert_eq!((stage.core.group_at(id, at(1)), stage.core.owed(id)), (None, 2));
        assert!(!stage.core.waits_for_acks(id, Verb::Leave));
        stage.acks(other);
        stage.acks(own);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_leave_goes_at_once_while_only_other_events_of_the_id_are_not_acked() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let [one, two] = [1, 2].map(|last| begins(&mut stage, id, last, Time::NEVER));
    says(&mut stage, id, two, JOINED, 0);
    stage.says(id, CmEvent::AddrChange);
    let held = [JOINED, CmEvent::AddrChange].map(|kind| stage.expect_event(channel, id, cm(kind)));
    stage.asks(id, leave(one)).unwrap();
    assert!(stage.expect_call("leave_multicast", OK).unwrap().result.is_ok());
    stage.no_event(channel);
    held.into_iter().for_each(|event| stage.acks(event));
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_leave_that_fails_has_left() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = bound(&mut stage, Some(channel));
    let group = member(&mut stage, channel, id, 1);
    stage.asks(id, leave(group)).unwrap();
    let failure = stage.expect_call("leave_multicast", Err(Errno::EADDRNOTAVAIL)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("leave_multicast", Errno::EADDRNOTAVAIL));
    assert_eq!(stage.core.groups(), 0);
    stage.ends(&[id], &[channel]);
}

#[test]
fn two_leaves_that_wait_go_one_after_the_other() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let groups = [1, 2, 3].map(|last| begins(&mut stage, id, last, Time::NEVER));
    for group in groups {
        says(&mut stage, id, group, JOINED, 0);
    }
    let [first, second, third] = groups.map(|_| stage.expect_event(channel, id, cm(JOINED)));
    for group in &groups[..2] {
        stage.asks(id, leave(*group)).unwrap();
    }
    stage.acks(first);
    let (token, _) = stage.takes_call("leave_multicast");
    stage.acks(second);
    stage.no_call();
    stage.answers(token, OK);
    stage.expect_call("leave_multicast", OK);
    for group in &groups[..2] {
        assert_eq!(stage.sees(channel, id, EventKind::Left).group, Some(*group));
    }
    stage.no_call();
    stage.acks(third);
    assert_eq!(stage.core.groups(), 1);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_leave_is_refused_during_a_call_and_one_that_waits_goes_after_it() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let [one, two] = [1, 2].map(|last| begins(&mut stage, id, last, Time::NEVER));
    says(&mut stage, id, one, JOINED, 0);
    let held = stage.expect_event(channel, id, cm(JOINED));
    stage.asks(id, leave(one)).unwrap();
    stage.asks(id, crate::fixture::RESOLVE).unwrap();
    let (token, _) = stage.takes_call("resolve_addr");
    assert_eq!(stage.refuses(id, leave(two), Why::Busy(Verb::ResolveAddr)).errno(), Errno::EBUSY);
    stage.acks(held);
    stage.no_call();
    stage.answers(token, OK);
    stage.expect_call("leave_multicast", OK);
    assert_eq!(stage.sees(channel, id, EventKind::Left).group, Some(one));
    stage.asks(id, leave(two)).unwrap();
    stage.refuses(id, Request::SetOption { option: cmid_proto::CmOption::Tos(1) }, Why::Busy(Verb::Leave));
    stage.all_well();
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_leave_that_waits_for_acks_does_not_wait_for_those_of_a_migration() {
    for moves in [false, true] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = bound(&mut stage, Some(here));
        let group = begins(&mut stage, id, 1, Time::NEVER);
        says(&mut stage, id, group, JOINED, 0);
        stage.says(id, CmEvent::AddrChange);
        let [joined, own] = [JOINED, CmEvent::AddrChange].map(|kind| stage.expect_event(here, id, cm(kind)));
        stage.asks(id, leave(group)).unwrap();
        let soon = stage.within(SOON);
        stage.asks_until(id, to(there), soon).unwrap();
        stage.refuses(id, join(2), Why::Busy(Verb::Migrate));
        stage.acks(joined);
        let (token, _) = stage.takes_call("leave_multicast");
        if moves {
            // They come while the leave is under way.
            stage.acks(own);
            stage.no_call();
            assert_eq!(stage.answers(token, OK), None);
            stage.expect_call("migrate_id", OK);
            stage.sees(there, id, EventKind::Migrated);
            stage.sees(there, id, EventKind::Left);
        } else {
            stage.passes(SOON);
            assert_eq!(stage.answers(token, OK), None);
            stage.acks(own);
            stage.sees(here, id, EventKind::Migrated);
            stage.sees(here, id, EventKind::Left);
        }
        stage.no_call();
        stage.ends(&[id], &[here, there]);
    }
}

#[test]
fn a_leave_that_waited_ends_with_a_destroy_and_can_be_asked_for_again_when_that_gives_up() {
    for fails in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = bound(&mut stage, Some(channel));
        let [group, other] = [1, 2].map(|last| begins(&mut stage, id, last, Time::NEVER));
        for group in [group, other] {
            says(&mut stage, id, group, JOINED, 0);
        }
        stage.says(id, CmEvent::AddrChange);
        let [joined, others, own] =
            [JOINED, JOINED, CmEvent::AddrChange].map(|kind| stage.expect_event(channel, id, cm(kind)));
        stage.asks(id, leave(group)).unwrap();
        stage.refuses(id, leave(group), Why::NoSuchGroup(group));
        stage.asks(id, leave(other)).unwrap();
        let soon = stage.within(SOON);
        stage.asks_until(id, Request::Destroy, soon).unwrap();
        assert!(!stage.core.waits_for_acks(id, Verb::Leave));
        stage.acks(joined);
        stage.acks(others);
        stage.no_call();
        if fails {
            stage.acks(own);
            stage.expect_call("destroy_id", Err(Errno::EBADF));
        } else {
            stage.passes(SOON);
            stage.acks(own);
        }
        stage.sees(channel, id, EventKind::Destroyed);
        stage.no_call();
        stage.no_event(channel);
        assert_eq!((stage.state(id), stage.core.groups()), (State::Failed, 2));
        stage.asks(id, leave(group)).unwrap();
        assert_eq!(stage.expect_call("leave_multicast", OK).unwrap().result, Ok(()));
        stage.no_event(channel);
        stage.ends(&[id], &[channel]);
    }
}
