//! Joining a group: answers, refusals, deadlines.

use std::time::Duration;

use cmid_proto::{
    Acks, Admission, AhAttr, Call, CmEvent, Datagram, Errno, EventKind, Limits, PortSpace, RawEvent, Refused, Request,
    State, Time, Verb, Why,
};

use super::{JOINED, LOST, SOON, at, begins, bound, join, leave, member, says};
use crate::fixture::{OK, Stage, cm, raw};

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
    let mut stage = Stage::with(Limits { ids: 32, channels: 9, events: 9, groups: 2, ..Limits::SINGLE });
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
