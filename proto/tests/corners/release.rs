//! Ids that leave a core, and the channels that go with them.

use cmid_proto::{Acks, CmEvent, Errno, Limits, RawEvent, RefuseReason, Request, RequestKind, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, RESOLVE, TO_SYNC, cm, raw};

#[test]
fn a_wait_for_a_request_that_the_removal_ended_is_read_in_the_other_core() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let listener = one.id(None);
    one.does(listener, LISTEN);
    one.submit(listener, Request::GetRequest).unwrap();
    one.report(listener, CmEvent::DeviceRemoval);
    assert_eq!(one.core.sync_result(listener), Some(Err(Errno::ENODEV)));
    let (released, _) = one.core.release(listener).unwrap();
    let (key, _) = two.core.adopt(released).unwrap();
    assert_eq!((two.state(key), two.core.sync_result(key)), (State::Removed, Some(Err(Errno::ENODEV))));
    assert_eq!(two.core.sync_event(key).unwrap().kind, cm(CmEvent::DeviceRemoval));
}

#[test]
fn an_id_brings_its_private_data_to_a_core_that_has_some_already() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let channels = [one.channel(Acks::OnDelivery), two.channel(Acks::OnDelivery)];
    let ids = [one.in_state(channels[0], State::Connecting), two.in_state(channels[1], State::Connecting)];
    for ((fixture, id), private_data) in [&mut one, &mut two].into_iter().zip(ids).zip([&b"one"[..], b"two"]) {
        fixture.does(id, TO_SYNC);
        let home = fixture.core.channel(id).unwrap();
        fixture.report_on(home, RawEvent { private_data, ..raw(id, CmEvent::Rejected, 28) });
    }
    let (released, _) = one.core.release(ids[0]).unwrap();
    let (key, home) = two.core.adopt(released).unwrap();
    assert_eq!(&*two.sees(home, key, cm(CmEvent::Rejected)).private_data, b"one");
    let own = two.core.channel(ids[1]).unwrap();
    assert_eq!(&*two.sees(own, ids[1], cm(CmEvent::Rejected)).private_data, b"two");
}

#[test]
fn synchronous_mode_needs_room_for_a_channel_unless_a_listener_has_its_own() {
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 2, events: 4, groups: 1, ..Limits::SINGLE });
    let here = fixture.channel(Acks::OnDelivery);
    let [listener, id] = [(); 2].map(|()| fixture.id(Some(here)));
    fixture.does(listener, LISTEN);
    // Both channels are in use: the shared one and the listener's own.
    fixture.does(listener, TO_SYNC);
    fixture.refuses(id, TO_SYNC, RefuseReason::NoChannelLeft);
    fixture.does(listener, Request::Destroy);
    fixture.does(id, TO_SYNC);
    fixture.does(id, RESOLVE);
    assert_eq!(fixture.core.id_info(id).and_then(|it| it.sync_open), Some(RequestKind::ResolveAddr));
}

#[test]
fn only_what_opens_a_channel_needs_room_for_one_and_no_owed_acks() {
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let here = fixture.channel(Acks::Explicit);
    let id = fixture.id(Some(here));
    let event = fixture.owes(here, id);
    fixture.refuses(id, LISTEN, RefuseReason::NoChannelLeft);
    fixture.does(id, BIND);
    fixture.does(id, RESOLVE);
    fixture.acks(event);
    // A synchronous id has its channel already.
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let id = fixture.id(None);
    fixture.does(id, LISTEN);
    assert_eq!(fixture.state(id), State::Listening);
}
