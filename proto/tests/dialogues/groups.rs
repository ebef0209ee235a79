//! Memberships in multicast groups.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Acks, Admission, AhAttr, Call, ChannelKey, CmEvent, Datagram, Errno, EventKind, GroupKey, IdKey, Limits, PortSpace,
    RawEvent, Refused, Request, State, Time, Verb, Why,
};

use crate::fixture::{BIND, OK, Stage, TO_SYNC, addr, cm, raw, to};

const SOON: Duration = Duration::from_millis(2);
const JOINED: CmEvent = CmEvent::MulticastJoin;
const LOST: CmEvent = CmEvent::MulticastError;

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, last], 7471))
}

fn join(last: u8) -> Request<'static> {
    Request::Join { addr: at(last), send_only: false }
}

fn leave(group: GroupKey) -> Request<'static> {
    Request::Leave { group }
}

/// An id for datagrams that has a device.
fn bound(stage: &mut Stage, on: Option<ChannelKey>) -> IdKey {
    let id = stage.id_for(PortSpace::Udp, on);
    stage.does(id, BIND);
    id
}

fn begins(stage: &mut Stage, id: IdKey, last: u8, deadline: Time) -> GroupKey {
    let group = stage.core.join(stage.now, id, at(last), false, deadline).unwrap();
    stage.all_well();
    group
}

fn says(stage: &mut Stage, id: IdKey, group: GroupKey, kind: CmEvent, status: i32) -> Admission {
    let line = stage.core.line(id).unwrap();
    stage.says_on(line, RawEvent { group: Some(group), ..raw(id, kind, status) })
}

/// A member, told so, with nothing owed.
fn member(stage: &mut Stage, on: ChannelKey, id: IdKey, last: u8) -> GroupKey {
    let group = begins(stage, id, last, Time::NEVER);
    assert_eq!(says(stage, id, group, JOINED, 0), Admission::Known);
    assert_eq!(stage.sees(on, id, cm(JOINED)).group, Some(group));
    group
}

#[test]
fn a_group_is_joined_used_and_left() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let group = stage.core.join(stage.now, id, at(1), true, Time::NEVER).unwrap();
    let (token, call) = stage.takes_call("join_multicast");
    assert_eq!(call, Call::Join { id, group, addr: at(1), send_only: true });
    assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
    assert_eq!((stage.core.group_at(id, at(1)), stage.core.group_at(id, at(2))), (Some(group), None));
    let way = Datagram { qp_num: 0xff_ffff, qkey: 0x0123_4567, path: AhAttr::default() };
    let told = RawEvent { group: Some(group), datagram: Some(way), ..raw(id, JOINED, 0) };
    assert_eq!(stage.says_on(channel, told), Admission::Known);
    let event = stage.sees(channel, id, cm(JOINED));
    assert_eq!((event.group, event.datagram, stage.state(id)), (Some(group), Some(way), State::Bound));
    stage.asks(id, leave(group)).unwrap();
    let (token, call) = stage.takes_call("leave_multicast");
    assert_eq!(call, Call::Leave { id, group, addr: at(1) });
    assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
    assert_eq!((stage.core.groups(), stage.core.group_at(id, at(1))), (0, None));
    stage.no_event(channel);
    stage.ends(&[id], &[channel]);
}

#[test]
fn what_cannot_be_joined_or_left_is_refused_and_says_why() {
    let mut stage = Stage::with(Limits { ids: 32, channels: 9, events: 9, groups: 2 });
    let channel = stage.channel(Acks::OnDelivery);
    let connected = stage.in_state(channel, State::Bound);
    assert_eq!(stage.refuses(connected, join(1), Why::NotDatagram).errno(), Errno::EINVAL);
    let nowhere = stage.id_for(PortSpace::Udp, Some(channel));
    stage.refuses(nowhere, join(1), Why::WrongState);
    stage.does(nowhere, Request::Bind { addr: "0.0.0.0:0".parse().unwrap() });
    assert_eq!(stage.refuses(nowhere, join(1), Why::NoDevice).errno(), Errno::EINVAL);

    let (one, two) = (bound(&mut stage, Some(channel)), bound(&mut stage, Some(channel)));
    let group = member(&mut stage, channel, one, 1);
    assert_eq!(stage.refuses(one, join(1), Why::AlreadyMember(at(1))).errno(), Errno::EADDRINUSE);
    let other = member(&mut stage, channel, two, 1);
    assert_eq!(stage.refuses(two, join(2), Why::NoGroupLeft).errno(), Errno::ENOMEM);
    assert_eq!(stage.refuses(one, leave(other), Why::NoSuchGroup(other)).errno(), Errno::EADDRNOTAVAIL);
    let now = stage.now;
    let why = Why::TooLate;
    let refused = stage.core.join(now, one, at(3), false, now).unwrap_err();
    assert_eq!(refused, Refused::Request { id: one, request: Verb::Join, state: State::Bound, why });
    stage.does(one, leave(group));
    stage.refuses(one, leave(group), Why::NoSuchGroup(group));
    let again = member(&mut stage, channel, one, 1);
    assert_ne!(group, again, "the old key names nothing");
    stage.refuses(one, leave(group), Why::NoSuchGroup(group));
    stage.ends(&[connected, nowhere, one, two], &[channel]);
}

#[test]
fn a_group_is_joined_with_an_address_and_no_operation_under_way() {
    let (stage, channel) = Stage::on(Acks::OnDelivery);
    for state in State::ALL.into_iter().filter(|&state| !matches!(state, State::Bound | State::AddrResolved)) {
        let mut stage = stage.clone();
        let id = stage.in_state(channel, state);
        let why = if state == State::Removed { Why::DeviceGone } else { Why::WrongState };
        stage.refuses(id, join(1), why);
    }
}

#[test]
fn a_join_that_fails_at_once_leaves_nothing() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = bound(&mut stage, Some(channel));
    let soon = stage.within(SOON);
    stage.asks_until(id, join(1), soon).unwrap();
    let failure = stage.expect_call("join_multicast", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state, failure.errno), ("join_multicast", State::Bound, Errno::EINVAL));
    assert_eq!((stage.core.groups(), stage.core.poll_timeout()), (0, None));
    member(&mut stage, channel, id, 1);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_group_that_is_lost_or_never_joined_can_only_be_left() {
    for joined in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = bound(&mut stage, Some(channel));
        let group = begins(&mut stage, id, 1, Time::NEVER);
        if joined {
            says(&mut stage, id, group, JOINED, 0);
            stage.sees(channel, id, cm(JOINED));
            assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Late, "twice");
        }
        assert_eq!(says(&mut stage, id, group, LOST, -110), Admission::Known);
        let event = stage.sees(channel, id, cm(LOST));
        assert_eq!((event.group, event.result()), (Some(group), Err(Errno::ETIMEDOUT)));
        for kind in [JOINED, LOST] {
            assert_eq!(says(&mut stage, id, group, kind, 0), Admission::Late);
        }
        stage.refuses(id, join(1), Why::AlreadyMember(at(1)));
        stage.does(id, leave(group));
        member(&mut stage, channel, id, 1);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn an_event_of_no_membership_of_the_id_is_late() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (one, two) = (bound(&mut stage, Some(channel)), bound(&mut stage, Some(channel)));
    let (old, group) = (begins(&mut stage, one, 1, Time::NEVER), begins(&mut stage, two, 1, Time::NEVER));
    stage.does(one, leave(old));
    for of in [None, Some(old), Some(group)] {
        let event = RawEvent { group: of, ..raw(one, JOINED, 0) };
        assert_eq!(stage.says_on(channel, event), Admission::Late);
    }
    stage.no_event(channel);
    // Nothing else is about a membership.
    let event = RawEvent { group: Some(group), ..raw(two, CmEvent::AddrChange, 0) };
    assert_eq!(stage.says_on(channel, event), Admission::Known);
    assert_eq!(stage.sees(channel, two, cm(CmEvent::AddrChange)).group, None);
    stage.ends(&[one, two], &[channel]);
}

#[test]
fn an_answer_that_precedes_the_outcome_is_the_newer_word() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = bound(&mut stage, Some(channel));
        let group = stage.core.join(stage.now, id, at(1), false, Time::NEVER).unwrap();
        let (token, _) = stage.takes_call("join_multicast");
        says(&mut stage, id, group, JOINED, 0);
        assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()));
        assert_eq!(stage.sees(channel, id, cm(JOINED)).group, Some(group));
        stage.does(id, leave(group));
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_join_ends_at_its_deadline_and_is_to_be_left_even_so() {
    for before_outcome in [None, Some(OK), Some(Err(Errno::EINVAL))] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = bound(&mut stage, Some(channel));
        let soon = stage.within(SOON);
        let group = stage.core.join(stage.now, id, at(1), false, soon).unwrap();
        let (token, _) = stage.takes_call("join_multicast");
        if before_outcome.is_none() {
            stage.answers(token, OK);
        }
        assert_eq!(stage.core.poll_timeout(), Some((soon, id)));
        stage.passes(SOON);
        if let Some(outcome) = before_outcome {
            assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()), "the event is its end");
        }
        let event = stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Join));
        assert_eq!((event.group, event.result()), (Some(group), Err(Errno::ETIMEDOUT)));
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Bound, None), "the id is as it was");
        assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Late);
        stage.refuses(id, join(1), Why::AlreadyMember(at(1)));
        stage.does(id, leave(group));
        member(&mut stage, channel, id, 1);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn each_join_has_its_own_deadline_and_the_ids_operation_another() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = bound(&mut stage, Some(channel));
    let spans = [4, 2, 2, 3].map(|ms| stage.within(Duration::from_millis(ms)));
    let groups = [1, 2, 3, 4].map(|last| begins(&mut stage, id, last, spans[usize::from(last) - 1]));
    let operation = stage.within(Duration::from_millis(3));
    stage.does_until(id, crate::fixture::RESOLVE, operation);
    says(&mut stage, id, groups[0], JOINED, 0);
    stage.sees(channel, id, cm(JOINED));
    assert_eq!(stage.core.poll_timeout(), Some((spans[1], id)));
    stage.passes(Duration::from_millis(2));
    let mut ended = [(); 2].map(|()| stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Join)).group);
    ended.sort();
    assert_eq!(ended, [Some(groups[1]), Some(groups[2])]);
    stage.passes(Duration::from_millis(1));
    stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Join));
    stage.sees(channel, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
    assert_eq!(stage.core.poll_timeout(), None);
    stage.ends(&[id], &[channel]);
}

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
fn a_leave_that_waits_is_not_held_up_by_a_migration_that_gives_up() {
    for closes in [false, true] {
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
        stage.no_call();
        let channels = if closes {
            stage.core.close_channel(there).unwrap();
            stage.all_well();
            stage.acks(own);
            vec![here]
        } else {
            stage.passes(SOON);
            stage.acks(own);
            vec![here, there]
        };
        stage.expect_call("leave_multicast", OK);
        stage.sees(here, id, EventKind::Migrated);
        stage.sees(here, id, EventKind::Left);
        stage.ends(&[id], &channels);
    }
}

#[test]
fn a_migration_takes_memberships_and_their_events_along() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = bound(&mut stage, Some(here));
    let soon = stage.within(SOON);
    let groups = [1, 2, 3].map(|last| begins(&mut stage, id, last, if last == 3 { soon } else { Time::NEVER }));
    says(&mut stage, id, groups[0], JOINED, 0);
    says(&mut stage, id, groups[1], JOINED, 0);
    let held = stage.expect_event(here, id, cm(JOINED));
    stage.asks(id, to(there)).unwrap();
    stage.no_call();
    stage.acks(held);
    stage.expect_call("migrate_id", OK);
    stage.sees(there, id, EventKind::Migrated);
    let second = stage.expect_event(there, id, cm(JOINED));
    assert_eq!(second.group, Some(groups[1]));
    stage.asks(id, leave(groups[1])).unwrap();
    stage.acks(second);
    stage.expect_call("leave_multicast", OK);
    stage.sees(there, id, EventKind::Left);
    stage.passes(SOON);
    assert_eq!(stage.sees(there, id, EventKind::DeadlinePassed(Verb::Join)).group, Some(groups[2]));
    says(&mut stage, id, groups[0], LOST, -1);
    stage.sees(there, id, cm(LOST));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_destroy_waits_for_the_acks_of_groups_too_and_takes_them_along() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let soon = stage.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut stage, id, last, soon));
    for group in [one, two] {
        says(&mut stage, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| stage.expect_event(channel, id, cm(JOINED)));
    // A leave that waits has no end of its own any more.
    stage.asks(id, leave(one)).unwrap();
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!(stage.core.poll_timeout(), None, "no join will be answered");
    assert_eq!(says(&mut stage, id, three, JOINED, 0), Admission::Late);
    stage.acks(first);
    stage.no_call();
    stage.acks(second);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    stage.sees(channel, id, EventKind::Destroyed);
    assert_eq!(stage.core.groups(), 0);
    stage.ends(&[], &[channel]);
}

#[test]
fn a_leave_that_a_destroy_overtook_goes_on_when_the_destroy_gives_up() {
    for fails in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = bound(&mut stage, Some(channel));
        let group = begins(&mut stage, id, 1, Time::NEVER);
        says(&mut stage, id, group, JOINED, 0);
        stage.says(id, CmEvent::AddrChange);
        let [joined, own] = [JOINED, CmEvent::AddrChange].map(|kind| stage.expect_event(channel, id, cm(kind)));
        stage.asks(id, leave(group)).unwrap();
        let soon = stage.within(SOON);
        stage.asks_until(id, Request::Destroy, soon).unwrap();
        stage.acks(joined);
        stage.no_call();
        if fails {
            stage.acks(own);
            stage.expect_call("destroy_id", Err(Errno::EBADF));
        } else {
            stage.passes(SOON);
            stage.acks(own);
        }
        stage.sees(channel, id, EventKind::Destroyed);
        stage.expect_call("leave_multicast", OK);
        stage.sees(channel, id, EventKind::Left);
        assert_eq!(stage.state(id), State::Failed);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_removed_device_ends_every_join_and_only_a_destroy_helps() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let soon = stage.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut stage, id, last, soon));
    for group in [one, two] {
        says(&mut stage, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| stage.expect_event(channel, id, cm(JOINED)));
    stage.asks(id, leave(one)).unwrap();
    stage.says(id, CmEvent::DeviceRemoval);
    assert_eq!(stage.core.poll_timeout(), None);
    for group in [two, three] {
        assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Late);
        stage.refuses(id, leave(group), Why::DeviceGone);
    }
    // The leave that waited goes on, and says what the device says.
    stage.acks(first);
    stage.expect_call("leave_multicast", Err(Errno::ENXIO));
    stage.sees(channel, id, cm(CmEvent::DeviceRemoval));
    assert_eq!(stage.sees(channel, id, EventKind::Left).result(), Err(Errno::ENXIO));
    stage.passes(SOON);
    stage.no_event(channel);
    stage.acks(second);
    stage.ends(&[id], &[channel]);
}

#[test]
fn in_synchronous_mode_a_join_waits_for_its_answer() {
    let cases = [
        (Some((JOINED, 0)), Ok(())),
        (Some((LOST, -1)), Err(Errno::EPERM)),
        (Some((CmEvent::DeviceRemoval, 0)), Err(Errno::ENODEV)),
        (None, Err(Errno::ETIMEDOUT)),
    ];
    for (end, result) in cases {
        let mut stage = Stage::new();
        let id = bound(&mut stage, None);
        let private = stage.core.home(id).unwrap();
        let soon = stage.within(SOON);
        let group = begins(&mut stage, id, 1, soon);
        assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
        stage.refuses(id, join(2), Why::Busy(Verb::Join));
        stage.refuses(id, leave(group), Why::Busy(Verb::Join));
        assert_eq!(stage.says(id, CmEvent::AddrChange), Admission::Known);
        assert_eq!(stage.core.sync_result(id), None);
        match end {
            Some((kind, status)) => assert_eq!(says(&mut stage, id, group, kind, status), Admission::Known),
            None => stage.passes(SOON),
        }
        assert_eq!(stage.core.sync_result(id), Some(result));
        for _ in 0..2 {
            let event = stage.core.sync_event(id).map(|event| event.kind);
            assert_eq!(event, end.map(|(kind, _)| cm(kind)));
        }
        assert_eq!(stage.core.poll_timeout(), None);
        stage.sees(private, id, cm(CmEvent::AddrChange));
        stage.no_event(private);
        if stage.state(id) != State::Removed {
            stage.does(id, leave(group));
            assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None), "the next request");
        }
        stage.ends(&[id], &[]);
    }
}

#[test]
fn in_synchronous_mode_a_join_does_not_end_by_what_befalls_another() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = bound(&mut stage, Some(channel));
    let (soon, later) = (stage.within(SOON), stage.within(SOON * 2));
    let [joined, pending] = [begins(&mut stage, id, 1, Time::NEVER), begins(&mut stage, id, 2, Time::NEVER)];
    let slow = begins(&mut stage, id, 3, soon);
    says(&mut stage, id, joined, JOINED, 0);
    stage.sees(channel, id, cm(JOINED));
    stage.does(id, TO_SYNC);
    let private = stage.core.home(id).unwrap();
    let own = begins(&mut stage, id, 4, later);
    says(&mut stage, id, pending, JOINED, 0);
    says(&mut stage, id, joined, LOST, -1);
    stage.passes(SOON);
    assert_eq!(stage.core.sync_result(id), None);
    for (kind, group) in [(cm(JOINED), pending), (cm(LOST), joined), (EventKind::DeadlinePassed(Verb::Join), slow)] {
        assert_eq!(stage.sees(private, id, kind).group, Some(group));
    }
    says(&mut stage, id, own, JOINED, 0);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    assert_eq!(stage.core.sync_event(id).unwrap().group, Some(own));
    stage.ends(&[id], &[channel]);
}

#[test]
fn in_synchronous_mode_a_join_that_fails_at_once_is_no_wait() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    stage.asks(id, join(1)).unwrap();
    assert!(stage.expect_call("join_multicast", Err(Errno::EINVAL)).unwrap().result.is_err());
    assert_eq!(stage.core.sync_result(id), None);
    begins(&mut stage, id, 1, Time::NEVER);
    stage.ends(&[id], &[]);
}

#[test]
fn a_synchronous_join_that_leaves_that_mode_ends_by_event() {
    for end in [Some(JOINED), Some(LOST), None] {
        for during in [false, true] {
            let (mut stage, channel) = Stage::on(Acks::Explicit);
            let id = bound(&mut stage, None);
            let soon = stage.within(SOON);
            let group = begins(&mut stage, id, 1, soon);
            let tell = |stage: &mut Stage| match end {
                Some(kind) => assert_eq!(says(stage, id, group, kind, 0), Admission::Known),
                None => stage.passes(SOON),
            };
            stage.asks(id, to(channel)).unwrap();
            let (token, _) = stage.takes_call("migrate_id");
            if during {
                tell(&mut stage);
            }
            stage.answers(token, OK);
            if !during {
                tell(&mut stage);
            }
            let kind = end.map_or(EventKind::DeadlinePassed(Verb::Join), cm);
            assert_eq!(stage.sees(channel, id, kind).group, Some(group));
            assert_eq!(stage.core.sync_result(id), None);
            stage.ends(&[id], &[channel]);
        }
    }
}

#[test]
fn a_destroy_ends_a_synchronous_join() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    let soon = stage.within(SOON);
    begins(&mut stage, id, 1, soon);
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, None));
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    stage.ends(&[], &[]);
}

#[test]
fn memberships_stay_with_their_core() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    let group = begins(&mut stage, id, 1, Time::NEVER);
    says(&mut stage, id, group, JOINED, 0);
    let before = stage.core.clone();
    let refused = stage.core.release(id).map(drop).unwrap_err();
    let why = Why::HasGroups;
    assert_eq!(refused, Refused::Request { id, request: Verb::Release, state: State::Bound, why });
    assert_eq!((refused.errno(), &stage.core), (Errno::EBUSY, &before));
    stage.does(id, leave(group));
    let (released, _) = stage.core.release(id).unwrap();
    let mut other = Stage::new();
    let (id, _) = other.core.adopt(released).unwrap();
    begins(&mut other, id, 1, Time::NEVER);
    other.ends(&[id], &[]);
}

#[test]
fn a_listener_and_an_id_that_has_failed_are_members_still() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let group = begins(&mut stage, id, 1, Time::NEVER);
    stage.does(id, crate::fixture::LISTEN);
    assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Known);
    let held = stage.expect_event(channel, id, cm(JOINED));
    stage.asks(id, leave(group)).unwrap();
    stage.asks(id, TO_SYNC).unwrap();
    stage.no_call();
    stage.acks(held);
    // The listener moves without the device; the leave is not held up by it.
    stage.expect_call("leave_multicast", OK);
    let line = stage.core.home(id).unwrap();
    stage.sees(line, id, EventKind::Migrated);
    stage.sees(line, id, EventKind::Left);

    let other = bound(&mut stage, Some(channel));
    let group = begins(&mut stage, other, 1, Time::NEVER);
    let soon = stage.within(SOON);
    stage.does_until(other, Request::ResolveAddr { src: None, dst: addr(9) }, soon);
    stage.passes(SOON);
    stage.sees(channel, other, EventKind::DeadlinePassed(Verb::ResolveAddr));
    assert_eq!(stage.state(other), State::Failed);
    assert_eq!(says(&mut stage, other, group, JOINED, 0), Admission::Known);
    stage.sees(channel, other, cm(JOINED));
    stage.does(other, leave(group));
    stage.ends(&[id, other], &[channel]);
}
