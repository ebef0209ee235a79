//! Ids that leave a core, and channels that go with theirs.

use cmid_proto::{Acks, CmEvent, Errno, Fault, Limits, RawEvent, Request, State, Verb, Why};

use crate::fixture::{BIND, LISTEN, RESOLVE, Stage, TO_SYNC, cm, raw};

#[test]
fn a_private_channel_that_the_device_does_not_close_is_a_leak() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    stage.asks(id, Request::Destroy).unwrap();
    stage.expect_call("destroy_id", Ok(()));
    let (token, _) = stage.takes_call("destroy_event_channel");
    let leak = Fault::Leak { call: "destroy_event_channel", errno: Errno::EIO };
    assert_eq!(stage.core.handle_outcome(token, Err(Errno::EIO)), Err(leak));
    stage.core.check();
    assert_eq!(stage.core.channels(), 0);
}

#[test]
fn a_wait_for_a_request_that_the_removal_ended_is_read_in_the_other_core() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let listener = one.id(None);
    one.does(listener, LISTEN);
    one.asks(listener, Request::GetRequest).unwrap();
    one.says(listener, CmEvent::DeviceRemoval);
    assert_eq!(one.core.sync_result(listener), Some(Err(Errno::ENODEV)));
    let (released, _) = one.core.release(listener).unwrap();
    let (key, _) = two.core.adopt(released).unwrap();
    assert_eq!((two.state(key), two.core.sync_result(key)), (State::Removed, Some(Err(Errno::ENODEV))));
    assert_eq!(two.core.sync_event(key).unwrap().kind, cm(CmEvent::DeviceRemoval));
    two.ends(&[key], &[]);
}

#[test]
fn an_id_brings_its_private_data_to_a_core_that_has_some_already() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let channels = [one.channel(Acks::OnDelivery), two.channel(Acks::OnDelivery)];
    let ids = [one.in_state(channels[0], State::Connecting), two.in_state(channels[1], State::Connecting)];
    for ((stage, id), private_data) in [&mut one, &mut two].into_iter().zip(ids).zip([&b"one"[..], b"two"]) {
        stage.does(id, TO_SYNC);
        let home = stage.core.home(id).unwrap();
        stage.says_on(home, RawEvent { private_data, ..raw(id, CmEvent::Rejected, 28) });
    }
    let (released, _) = one.core.release(ids[0]).unwrap();
    let (key, home) = two.core.adopt(released).unwrap();
    assert_eq!(&*two.sees(home, key, cm(CmEvent::Rejected)).private_data, b"one");
    let own = two.core.home(ids[1]).unwrap();
    assert_eq!(&*two.sees(own, ids[1], cm(CmEvent::Rejected)).private_data, b"two");
    two.ends(&[key, ids[1]], &[channels[1]]);
}

#[test]
fn synchronous_mode_needs_room_for_a_channel_unless_a_listener_has_its_own() {
    let mut stage = Stage::with(Limits { ids: 4, channels: 2, events: 4, groups: 1, ..Limits::SINGLE });
    let here = stage.channel(Acks::OnDelivery);
    let [listener, id] = [(); 2].map(|()| stage.id(Some(here)));
    stage.does(listener, LISTEN);
    // Both channels are there: the shared one, and the listener's own.
    stage.does(listener, TO_SYNC);
    stage.refuses(id, TO_SYNC, Why::NoChannelLeft);
    stage.does(listener, Request::Destroy);
    stage.does(id, TO_SYNC);
    stage.does(id, RESOLVE);
    assert_eq!(stage.core.sync_open(id), Some(Verb::ResolveAddr));
    stage.ends(&[id], &[here]);
}

#[test]
fn only_what_opens_a_channel_needs_room_for_one_and_no_owed_acks() {
    let mut stage = Stage::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let here = stage.channel(Acks::Explicit);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.refuses(id, LISTEN, Why::NoChannelLeft);
    stage.does(id, BIND);
    stage.does(id, RESOLVE);
    stage.acks(event);
    stage.ends(&[id], &[here]);
    // A synchronous id has its channel already.
    let mut stage = Stage::with(Limits { ids: 4, channels: 1, events: 4, groups: 1, ..Limits::SINGLE });
    let id = stage.id(None);
    stage.does(id, LISTEN);
    assert_eq!(stage.state(id), State::Listening);
}

#[test]
fn nobody_is_told_that_a_private_channel_is_closed() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    stage.asks(id, Request::Destroy).unwrap();
    stage.expect_call("destroy_id", Ok(()));
    let (token, _) = stage.takes_call("destroy_event_channel");
    assert_eq!(stage.core.handle_outcome(token, Ok(())), Ok(None));
}
