//! Corner cases of values: names, statuses, equality of cores.

use std::hash::{BuildHasher as _, RandomState};

use cmid_proto::{
    Acks, CmEvent, ConnParam, Errno, EventError, EventKind, Flow, Limits, PortSpace, RawEvent, ReceivedParam, Request,
    RequestKind, State, Time,
};

use crate::fixture::{CoreFixture, cm};

#[test]
fn every_kind_of_event_has_a_name_of_its_own() {
    let kinds = [
        EventKind::Cm(CmEvent::AddrResolved),
        EventKind::Migrated,
        EventKind::Destroyed,
        EventKind::Left,
        EventKind::DeadlinePassed(RequestKind::Connect),
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
fn an_error_with_an_event_names_its_errno_if_the_event_does_not() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    let mut texts = |errno| {
        fixture.report_status(id, CmEvent::AddrChange, -Errno::ENOMEM.0);
        let event = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
        (event.to_string(), EventError { errno, event }.to_string())
    };
    let (event, error) = texts(Errno::ENOMEM);
    assert_eq!(error, event);
    let (event, error) = texts(Errno::EIO);
    assert_eq!(error, format!("{event}: {}", Errno::EIO));
}

#[test]
fn cores_differ_when_they_differ_in_an_id_or_in_what_they_may_hold() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Bound);
    let before = fixture.core.clone();
    fixture.does(id, Request::AttachQp);
    assert_ne!(fixture.core, before);
    let hasher = RandomState::new();
    assert_ne!(hasher.hash_one(&fixture.core), hasher.hash_one(&before));
    fixture.does(id, Request::DetachQp);
    assert_eq!((&fixture.core, hasher.hash_one(&fixture.core)), (&before, hasher.hash_one(&before)));

    let limits = Limits { ids: 4, channels: 4, events: 4, groups: 4, ..Limits::SINGLE };
    let cores = [limits, Limits { ids: 5, ..limits }, Limits { groups: 5, ..limits }]
        .map(|limits| CoreFixture::with(limits).core.clone());
    assert!(cores[0] != cores[1] && cores[0] != cores[2] && cores[1] != cores[2]);
}

#[test]
fn a_receipt_names_the_id_and_the_group_that_it_counts_for() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let (id, group, event) = fixture.member_that_owes(here);
    let ack_token = event.ack_token.unwrap();
    assert_eq!((ack_token.owner(), ack_token.group()), (id, Some(group)));
    fixture.core.ack(ack_token).unwrap();
}

#[test]
fn a_connection_that_ends_otherwise_is_disconnected_no_second_time() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    fixture.does(id, Request::Teardown);
    // The core would answer the peer's disconnect, but the device is removed first.
    fixture.report(id, CmEvent::Disconnected);
    fixture.takes_call("disconnect");
    fixture.report(id, CmEvent::DeviceRemoval);
    fixture.no_call();
}

#[test]
fn a_call_names_its_id_and_one_on_a_channel_names_none() {
    let mut fixture = CoreFixture::new();
    let channel = fixture.opens(Acks::OnDelivery).unwrap();
    let call = fixture.takes_call("create_event_channel");
    assert_eq!(call.id(), None);
    fixture.answers(Ok(()));
    let id = fixture.creates(PortSpace::Tcp, Some(channel)).unwrap();
    let call = fixture.takes_call("create_id");
    assert_eq!(call.id(), Some(id));
    fixture.answers(Ok(()));
}

/// Private data may be secret, and events and errors are logged.
#[test]
fn no_debug_text_contains_private_data() {
    const SECRET: &[u8] = b"a secret";
    let (mut fixture, here, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.does(listener, Request::Listen { backlog: 1 });
    let device_channel = fixture.core.device_channel(listener).unwrap();
    let child = fixture.core.wants_event(device_channel).unwrap();
    let request =
        RawEvent { listener: Some(listener), private_data: SECRET, ..RawEvent::new(child, CmEvent::ConnectRequest) };
    let mut texts = vec![format!("{request:?}"), format!("{:?}", request.map_private_data(<[u8]>::to_vec))];
    fixture.report_on(device_channel, request);
    texts.push(format!("{:?}", fixture.core));
    let event = fixture.core.poll_event(here).unwrap();
    assert_eq!(&*event.private_data, SECRET);
    texts.push(format!("{event:?}"));
    let rejected = RawEvent { private_data: SECRET, status: 28, ..RawEvent::new(listener, CmEvent::Rejected) };
    texts.push(format!("{rejected:?}"));
    let id = fixture.in_state(here, State::RouteResolved);
    let connect = Request::Connect { param: crate::fixture::param(), private_data: SECRET };
    let begun = fixture.core.begin(Time::ZERO, id, &connect, Time::NEVER).unwrap();
    assert_eq!(begun.private_data(), SECRET);
    texts.extend([format!("{begun:?}"), format!("{:?}", Flow::Next(begun))]);
    for text in &texts {
        for bytes in ["a secret", "97, 32, 115", "61, 20, 73", "61 20 73"] {
            assert!(!text.contains(bytes), "{text}");
        }
    }
    for text in [&texts[0], &texts[1], &texts[3]] {
        assert!(text.contains("private_data: 8 bytes"), "{text}");
    }
}
