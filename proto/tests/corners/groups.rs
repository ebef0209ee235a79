//! Memberships in multicast groups.

use std::net::SocketAddr;

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, Errno, EventKind, GroupKey, IdKey, PortSpace, RawEvent, Request, Time,
};

use crate::fixture::{BIND, OK, Stage, cm, raw, to};

const JOINED: CmEvent = CmEvent::MulticastJoin;
const LOST: CmEvent = CmEvent::MulticastError;

/// An id that has asked to join.
fn joining() -> (Stage, ChannelKey, IdKey, GroupKey) {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.id_for(PortSpace::Udp, Some(here));
    stage.does(id, BIND);
    let group = stage.core.join(stage.now, id, SocketAddr::from(([239, 1, 1, 1], 7471)), false, Time::NEVER).unwrap();
    stage.all_well();
    (stage, here, id, group)
}

fn of(group: GroupKey, id: IdKey, kind: CmEvent, status: i32) -> RawEvent<'static> {
    RawEvent { group: Some(group), ..raw(id, kind, status) }
}

#[test]
fn a_leave_that_fails_after_the_acks_tells_a_negative_errno() {
    let (mut stage, here, id, group) = joining();
    stage.says_on(here, of(group, id, JOINED, 0));
    let event = stage.expect_event(here, id, cm(JOINED));
    stage.asks(id, Request::Leave { group }).unwrap();
    stage.no_call();
    stage.acks(event);
    stage.expect_call("leave_multicast", Err(Errno::EINVAL));
    let left = stage.sees(here, id, EventKind::Left);
    assert_eq!((left.status, left.result(), left.group), (-Errno::EINVAL.0, Err(Errno::EINVAL), Some(group)));
    stage.ends(&[id], &[here]);
}

#[test]
fn what_comes_of_a_group_that_waits_to_be_left_is_late() {
    let (mut stage, here, id, group) = joining();
    stage.says_on(here, of(group, id, JOINED, 0));
    let event = stage.expect_event(here, id, cm(JOINED));
    stage.asks(id, Request::Leave { group }).unwrap();
    assert_eq!(stage.says_on(here, of(group, id, LOST, -1)), Admission::Late);
    stage.no_event(here);
    stage.acks(event);
    stage.expect_call("leave_multicast", OK);
    stage.sees(here, id, EventKind::Left);
    stage.ends(&[id], &[here]);
}

#[test]
fn a_group_that_could_not_be_joined_cannot_be_lost() {
    let (mut stage, here, id, group) = joining();
    assert_eq!(stage.says_on(here, of(group, id, JOINED, -Errno::EINVAL.0)), Admission::Known);
    assert_eq!(stage.sees(here, id, cm(JOINED)).status, -Errno::EINVAL.0);
    assert_eq!(stage.says_on(here, of(group, id, LOST, -1)), Admission::Late);
    stage.ends(&[id], &[here]);
}

#[test]
fn events_that_moved_go_out_of_the_middle_of_a_channel() {
    let (mut stage, here, id, group) = joining();
    let there = stage.channel(Acks::OnDelivery);
    let other = stage.id(Some(there));
    stage.says_status(other, CmEvent::AddrChange, 1);
    stage.says(id, CmEvent::AddrChange);
    stage.says_on(here, of(group, id, JOINED, 0));
    stage.does(id, to(there));
    stage.says_status(other, CmEvent::AddrChange, 2);
    // The second of those that moved, and then the first.
    stage.does(id, Request::Leave { group });
    stage.does(id, Request::Destroy);
    assert_eq!(stage.core.counters().discarded, 2);
    for status in [1, 2] {
        assert_eq!(stage.sees(there, other, cm(CmEvent::AddrChange)).status, status);
    }
    stage.no_event(there);
    stage.ends(&[other], &[here, there]);
}
