//! Joining a group: answers, refusals, deadlines.

use std::net::{SocketAddr, SocketAddrV6};
use std::time::Duration;

use cmid_proto::datapath::AhAttr;
use cmid_proto::{
    Acks, Admission, Call, CmEvent, Datagram, Errno, EventKind, Limits, PortSpace, RawEvent, RefuseReason, Refused,
    Request, RequestKind, State, Time,
};

use super::{JOINED, LOST, SOON, at, begins, bound, bound_on, join, leave, member, report};
use crate::fixture::{CoreFixture, OK, cm, raw};

#[test]
fn a_group_is_joined_used_and_left() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let group = fixture.joins(id, at(1), true, Time::NEVER).unwrap();
    let call = fixture.takes_call("join_multicast");
    assert_eq!(call, Call::Join { id, group, addr: at(1), send_only: true });
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    assert_eq!((fixture.core.group_at(id, at(1)), fixture.core.group_at(id, at(2))), (Some(group), None));
    let way = Datagram { qp_num: 0xff_ffff, qkey: 0x0123_4567, path: AhAttr::default() };
    let event = RawEvent { group: Some(group), datagram: Some(way), ..raw(id, JOINED, 0) };
    assert_eq!(fixture.report_on(channel, event), Admission::Known);
    let event = fixture.sees(channel, id, cm(JOINED));
    assert_eq!((event.group, event.datagram, fixture.state(id)), (Some(group), Some(way), State::Bound));
    fixture.submit(id, leave(group)).unwrap();
    let call = fixture.takes_call("leave_multicast");
    assert_eq!(call, Call::Leave { id, group, addr: at(1) });
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    assert_eq!((fixture.core.summary().groups, fixture.core.group_at(id, at(1))), (0, None));
    fixture.no_event(channel);
}

#[test]
fn what_cannot_be_joined_or_left_is_refused_with_a_reason() {
    let mut fixture = CoreFixture::with(Limits { ids: 32, channels: 9, events: 9, groups: 2, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::OnDelivery);
    let connected = fixture.in_state(channel, State::Bound);
    assert_eq!(fixture.refuses(connected, join(1), RefuseReason::NotDatagram).errno(), Errno::EINVAL);
    let nowhere = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.refuses(nowhere, join(1), RefuseReason::WrongState);
    fixture.does(nowhere, Request::Bind { addr: "0.0.0.0:0".parse().unwrap() });
    assert_eq!(fixture.refuses(nowhere, join(1), RefuseReason::NoDevice).errno(), Errno::EINVAL);

    let (one, two) = (bound(&mut fixture, Some(channel)), bound(&mut fixture, Some(channel)));
    let group = member(&mut fixture, channel, one, 1);
    assert_eq!(fixture.refuses(one, join(1), RefuseReason::AlreadyMember(at(1))).errno(), Errno::EADDRINUSE);
    let other = member(&mut fixture, channel, two, 1);
    assert_eq!(fixture.refuses(two, join(2), RefuseReason::NoGroupLeft).errno(), Errno::ENOMEM);
    assert_eq!(fixture.refuses(one, leave(other), RefuseReason::NoSuchGroup(other)).errno(), Errno::EADDRNOTAVAIL);
    let now = fixture.now;
    let reason = RefuseReason::TooLate;
    let refused = fixture.joins(one, at(3), false, now).unwrap_err();
    assert_eq!(refused, Refused::Request { id: one, request: RequestKind::Join, state: State::Bound, reason });
    fixture.does(one, leave(group));
    fixture.refuses(one, leave(group), RefuseReason::NoSuchGroup(group));
    let again = member(&mut fixture, channel, one, 1);
    assert_ne!(group, again, "the old key names nothing");
    fixture.refuses(one, leave(group), RefuseReason::NoSuchGroup(group));
}

#[test]
fn flow_information_does_not_make_another_group() {
    let (mut fixture, _, id) = bound_on(Acks::OnDelivery);
    let at = |flow_info, scope| SocketAddr::from(SocketAddrV6::new("ff02::7".parse().unwrap(), 7471, flow_info, scope));
    let join = |addr| Request::Join { addr, send_only: false };
    fixture.does(id, join(at(1, 2)));
    let group = fixture.core.group_at(id, at(0, 2));
    assert!(group.is_some());
    fixture.refuses(id, join(at(3, 2)), RefuseReason::AlreadyMember(at(3, 2)));
    // The device gets the address of the join.
    fixture.submit(id, leave(group.unwrap())).unwrap();
    let call = fixture.takes_call("leave_multicast");
    assert_eq!(call, Call::Leave { id, group: group.unwrap(), addr: at(1, 2) });
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    fixture.does(id, join(at(1, 2)));
    fixture.does(id, join(at(1, 3)));
}

#[test]
fn a_join_that_fails_at_once_leaves_nothing() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let soon = fixture.within(SOON);
    fixture.submit_until(id, join(1), soon).unwrap();
    let failure = fixture.expect_call("join_multicast", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state, failure.errno), ("join_multicast", State::Bound, Errno::EINVAL));
    assert_eq!((fixture.core.summary().groups, fixture.core.poll_timeout()), (0, None));
    member(&mut fixture, channel, id, 1);
}

#[test]
fn a_group_that_is_lost_or_never_joined_can_only_be_left() {
    for joined in [false, true] {
        let (mut fixture, channel, id) = bound_on(Acks::Explicit);
        let group = begins(&mut fixture, id, 1, Time::NEVER);
        if joined {
            report(&mut fixture, id, group, JOINED, 0);
            fixture.sees(channel, id, cm(JOINED));
            assert_eq!(report(&mut fixture, id, group, JOINED, 0), Admission::Late, "twice");
        }
        assert_eq!(report(&mut fixture, id, group, LOST, -110), Admission::Known);
        let event = fixture.sees(channel, id, cm(LOST));
        assert_eq!((event.group, event.result()), (Some(group), Err(Errno::ETIMEDOUT)));
        for kind in [JOINED, LOST] {
            assert_eq!(report(&mut fixture, id, group, kind, 0), Admission::Late);
        }
        fixture.refuses(id, join(1), RefuseReason::AlreadyMember(at(1)));
        fixture.does(id, leave(group));
        member(&mut fixture, channel, id, 1);
    }
}

#[test]
fn an_event_of_no_membership_of_the_id_is_late() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (one, two) = (bound(&mut fixture, Some(channel)), bound(&mut fixture, Some(channel)));
    let (old, group) = (begins(&mut fixture, one, 1, Time::NEVER), begins(&mut fixture, two, 1, Time::NEVER));
    fixture.does(one, leave(old));
    for of in [None, Some(old), Some(group)] {
        let event = RawEvent { group: of, ..raw(one, JOINED, 0) };
        assert_eq!(fixture.report_on(channel, event), Admission::Late);
    }
    fixture.no_event(channel);
    // A group is ignored on an event of any other type.
    let event = RawEvent { group: Some(group), ..raw(two, CmEvent::AddrChange, 0) };
    assert_eq!(fixture.report_on(channel, event), Admission::Known);
    assert_eq!(fixture.sees(channel, two, cm(CmEvent::AddrChange)).group, None);
}

#[test]
fn a_join_ends_at_its_deadline_and_is_to_be_left_even_so() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let soon = fixture.within(SOON);
    let group = fixture.joins(id, at(1), false, soon).unwrap();
    assert_eq!((fixture.core.summary().groups, fixture.core.poll_timeout()), (0, None), "until the outcome");
    fixture.expect_call("join_multicast", OK);
    assert_eq!(fixture.core.poll_timeout(), Some((soon, id)));
    fixture.passes(SOON);
    let event = fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Join));
    assert_eq!((event.group, event.result()), (Some(group), Err(Errno::ETIMEDOUT)));
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Bound, None), "the id is as it was");
    assert_eq!(report(&mut fixture, id, group, JOINED, 0), Admission::Late);
    fixture.refuses(id, join(1), RefuseReason::AlreadyMember(at(1)));
    fixture.does(id, leave(group));
    member(&mut fixture, channel, id, 1);
}

#[test]
fn each_join_has_its_own_deadline_and_the_ids_operation_another() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let spans = [4, 2, 2, 3].map(|ms| fixture.within(Duration::from_millis(ms)));
    let groups = [1, 2, 3, 4].map(|last| begins(&mut fixture, id, last, spans[usize::from(last) - 1]));
    let operation = fixture.within(Duration::from_millis(3));
    fixture.does_until(id, crate::fixture::RESOLVE, operation);
    report(&mut fixture, id, groups[0], JOINED, 0);
    fixture.sees(channel, id, cm(JOINED));
    assert_eq!(fixture.core.poll_timeout(), Some((spans[1], id)));
    fixture.passes(Duration::from_millis(2));
    let mut ended = [(); 2].map(|()| fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Join)).group);
    ended.sort();
    assert_eq!(ended, [Some(groups[1]), Some(groups[2])]);
    fixture.passes(Duration::from_millis(1));
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Join));
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    assert_eq!(fixture.core.poll_timeout(), None);
}
