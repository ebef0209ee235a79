//! Values that say something: names, statuses, whether two cores are equal.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use cmid_proto::{
    Acks, CmEvent, ConnParam, Errno, EventKind, Limits, PortSpace, RawEvent, ReceivedParam, Request, State, Time, Verb,
};

use crate::fixture::{BIND, Stage, addr, cm, raw, to};

#[test]
fn every_kind_of_event_has_a_name_of_its_own() {
    let kinds = [
        EventKind::Cm(CmEvent::AddrResolved),
        EventKind::Migrated,
        EventKind::Destroyed,
        EventKind::Left,
        EventKind::DeadlinePassed(Verb::Connect),
    ];
    let names = kinds.map(|kind| kind.to_string());
    assert_eq!(names, ["ADDR_RESOLVED", "MIGRATED", "DESTROYED", "LEFT", "DEADLINE_PASSED(connect)"]);
}

#[test]
fn the_parameters_of_an_event_are_read_through_their_wrapper() {
    let param = ConnParam { qp_num: 77, ..ConnParam::default() };
    assert_eq!(*ReceivedParam(param), param);
}

#[test]
fn the_status_of_an_event_is_an_errno_whatever_its_sign() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(here));
    for (status, result) in [
        (0, Ok(())),
        (-Errno::EIO.0, Err(Errno::EIO)),
        (Errno::EIO.0, Err(Errno::EIO)),
        (i32::MAX, Err(Errno(i32::MAX))),
        (i32::MIN, Err(Errno::EINVAL)),
    ] {
        stage.says_status(id, CmEvent::AddrChange, status);
        assert_eq!(stage.sees(here, id, cm(CmEvent::AddrChange)).result(), result, "{status}");
    }
    stage.ends(&[id], &[here]);
}

#[test]
fn an_end_without_an_errno_is_an_error_even_so() {
    for (errno, status) in [(0, -Errno::EIO.0), (22, -22), (i32::MIN, i32::MAX)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let id = stage.id(Some(here));
        stage.says(id, CmEvent::AddrChange);
        let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
        stage.asks(id, Request::Destroy).unwrap();
        stage.acks(event);
        stage.expect_call("destroy_id", Err(Errno(errno)));
        assert_eq!(stage.sees(here, id, EventKind::Destroyed).status, status, "errno {errno}");
    }
}

#[test]
fn cores_differ_when_they_differ_in_an_id_or_in_what_they_may_hold() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    let before = stage.core.clone();
    stage.does(id, Request::AttachQp);
    assert_ne!(stage.core, before);
    let hasher = RandomState::new();
    assert_ne!(hasher.hash_one(&stage.core), hasher.hash_one(&before));
    stage.does(id, Request::DetachQp);
    assert_eq!((&stage.core, hasher.hash_one(&stage.core)), (&before, hasher.hash_one(&before)));

    let limits = Limits { ids: 4, channels: 4, events: 4, groups: 4, ..Limits::SINGLE };
    let cores =
        [limits, Limits { ids: 5, ..limits }, Limits { groups: 5, ..limits }].map(|limits| Stage::with(limits).core);
    assert!(cores[0] != cores[1] && cores[0] != cores[2] && cores[1] != cores[2]);
}

#[test]
fn a_receipt_names_the_id_and_the_group_that_it_counts_for() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.id_for(PortSpace::Udp, Some(here));
    stage.does(id, BIND);
    let at = addr(9);
    let group = stage.core.join(stage.now, id, at, false, Time::NEVER).unwrap();
    stage.all_well();
    stage.says_on(here, RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) });
    let receipt = stage.expect_event(here, id, cm(CmEvent::MulticastJoin)).receipt.unwrap();
    assert_eq!((receipt.owner(), receipt.group()), (id, Some(group)));
    stage.core.ack(receipt).unwrap();
    stage.ends(&[id], &[here]);
}

#[test]
fn a_connection_that_ends_otherwise_is_disconnected_no_second_time() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Connected);
    stage.asks(id, Request::Teardown).unwrap();
    let (token, _) = stage.takes_call("disconnect");
    // The peer disconnects as well: that is to be answered, if the device does not go first.
    stage.says(id, CmEvent::Disconnected);
    stage.says(id, CmEvent::DeviceRemoval);
    stage.answers(token, Ok(()));
    stage.no_call();
    stage.ends(&[id], &[here]);
}

#[test]
fn every_key_is_told_once_by_the_lists_of_a_core() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let ids: HashSet<_> = (0..3).map(|_| stage.id(Some(here))).collect();
    assert_eq!(stage.core.id_keys().collect::<HashSet<_>>(), ids);
    assert_eq!(stage.core.id_keys().count(), 3);
    assert_eq!(stage.core.channel_keys().collect::<Vec<_>>(), [here]);
    stage.ends(&Vec::from_iter(ids), &[here]);
}

#[test]
fn a_call_names_its_id_and_one_on_a_channel_names_none() {
    let mut stage = Stage::new();
    let channel = stage.core.open_channel(Acks::OnDelivery).unwrap();
    let (token, call) = stage.takes_call("create_event_channel");
    assert_eq!(call.id(), None);
    stage.answers(token, Ok(()));
    let id = stage.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let (token, call) = stage.takes_call("create_id");
    assert_eq!(call.id(), Some(id));
    stage.answers(token, Ok(()));
    stage.ends(&[id], &[channel]);
}

#[test]
fn each_request_that_waits_for_acks_says_so_for_itself_alone() {
    let waits = [Verb::Migrate, Verb::Leave, Verb::Destroy];
    for at in 0..waits.len() {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = stage.id_for(PortSpace::Udp, Some(here));
        stage.does(id, BIND);
        let group = stage.core.join(stage.now, id, addr(9), false, Time::NEVER).unwrap();
        stage.all_well();
        stage.says_on(here, RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) });
        let event = stage.expect_event(here, id, cm(CmEvent::MulticastJoin));
        assert!(waits.iter().all(|verb| !stage.core.waits_for_acks(id, *verb)), "nothing was asked for");
        let request = [to(there), Request::Leave { group }, Request::Destroy][at];
        let asked = request.verb();
        stage.asks(id, request).unwrap();
        for verb in waits {
            assert_eq!(stage.core.waits_for_acks(id, verb), verb == asked, "{verb} when {asked} was asked for");
        }
        stage.acks(event);
        stage.all_well();
        assert!(!stage.core.waits_for_acks(id, asked));
    }
}
