//! A listener has its own channel at the device, and migrates without a call to the device.

use cmid_proto::info::WaitsFor;
use cmid_proto::{Acks, Call, CmEvent, Errno, EventKind, Limits, Request, RequestKind, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, OK, TO_SYNC, accept, cm, raw, to};

#[test]
fn a_listen_opens_a_channel_moves_the_id_there_and_listens() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, State::Bound);
    fixture.submit(id, LISTEN).unwrap();
    let call = fixture.takes_call("create_event_channel");
    let Call::OpenChannel { channel: device_channel } = call else { panic!("{call:?}") };
    assert_eq!(fixture.answers(OK), None);
    let call = fixture.takes_call("migrate_id");
    assert_eq!(call, Call::Migrate { id, from: here, to: device_channel });
    assert_eq!(fixture.answers(OK), None);
    let call = fixture.takes_call("listen");
    assert_eq!(call, Call::Listen { id, backlog: 8 });
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    assert_eq!((fixture.core.device_channel(id), fixture.core.channel(id)), (Some(device_channel), Some(here)));
    assert!(!fixture.is_sync(id));
    // Events that were pending at the migration are on the new channel. The kernel does not wake its readers.
    assert_eq!(fixture.core.poll_readable(), Some(device_channel));
}

/// Until an id listens on the channel, no event there is a request. The reserve of ids does not stop reads.
#[test]
fn the_channel_of_a_listener_is_read_like_any_other_until_the_id_listens() {
    let mut fixture = CoreFixture::with(Limits { ids: 8, channels: 8, ..Limits::SINGLE }).reserving(4, 0);
    let here = fixture.channel(Acks::OnDelivery);
    let id = (0..4).map(|_| fixture.id(Some(here))).last().unwrap();
    fixture.makes(id, LISTEN, "create_event_channel");
    fixture.expect_call("migrate_id", OK);
    fixture.expect_call("listen", Err(Errno::EADDRINUSE));
    let device_channel = fixture.core.device_channel(id).unwrap();
    assert_ne!(device_channel, here);
    assert!(fixture.core.wants_event(device_channel).is_some());
    fixture.report_and_take(id, CmEvent::AddrChange);
    // The id has its own channel, so the next listen is one call.
    fixture.makes(id, LISTEN, "listen");
    assert_eq!((fixture.state(id), fixture.core.device_channel(id)), (State::Listening, Some(device_channel)));
    assert_eq!(fixture.core.wants_event(device_channel), None);
}

#[test]
fn a_listen_that_fails_half_way_leaves_the_id_as_it_was_and_can_be_repeated() {
    for fails in 0..3 {
        let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, State::Bound);
        fixture.submit(id, LISTEN).unwrap();
        let mut failure = None;
        for (at, call) in ["create_event_channel", "migrate_id", "listen"].into_iter().enumerate().take(fails + 1) {
            let outcome = if at == fails { Err(Errno::EMFILE) } else { OK };
            failure = fixture.expect_call(call, outcome).map(|ended| ended.result.unwrap_err().call);
            assert_eq!(failure, (at == fails).then_some(call));
        }
        assert!(failure.is_some());
        assert_eq!((fixture.state(id), fixture.core.channel(id)), (State::Bound, Some(here)));
        fixture.all_well();
        fixture.does(id, LISTEN);
        assert_eq!(fixture.state(id), State::Listening);
        assert_eq!(fixture.core.channels().count(), 2);
    }
}

#[test]
fn a_listener_moves_at_once_with_its_undelivered_requests_and_their_ids() {
    let (mut fixture, [here, there], listener) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(listener);
    let taken = fixture.report_request(listener);
    fixture.sees(here, taken, cm(CmEvent::ConnectRequest));
    let (first, second) = (fixture.report_request(listener), fixture.report_request(listener));
    fixture.submit(listener, to(there)).unwrap();
    assert!(!fixture.core.waiting().any(|it| it == (listener, WaitsFor::Acks(RequestKind::Migrate))));
    assert_eq!(fixture.channels_of(listener), (Some(there), device_channel));
    fixture.no_call();
    fixture.no_event(here);
    let third = fixture.report_request(listener);
    for child in [first, second, third] {
        fixture.sees(there, child, cm(CmEvent::ConnectRequest));
        assert_eq!(fixture.channels_of(child), (Some(there), device_channel));
    }
    assert_eq!(fixture.channels_of(taken), (Some(here), device_channel), "delivered events do not change");
    for (child, home) in [(taken, here), (second, there)] {
        fixture.submit(child, accept()).unwrap();
        let call = fixture.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: device_channel.unwrap(), to: home });
        fixture.answers(OK);
        fixture.expect_call("accept", OK);
        fixture.report_and_take(child, CmEvent::Established);
    }
}

#[test]
fn a_listener_whose_requests_are_not_acked_moves_when_they_are() {
    let (mut fixture, [here, there], listener) = CoreFixture::with_id_on_two(Acks::Explicit, State::Listening);
    let child = fixture.report_request(listener);
    let held = fixture.expect_event(here, child, cm(CmEvent::ConnectRequest));
    let waiting = fixture.report_request(listener);
    fixture.submit(listener, to(there)).unwrap();
    assert!(fixture.core.waiting().any(|it| it == (listener, WaitsFor::Acks(RequestKind::Migrate))));
    fixture.acks(held);
    fixture.all_well();
    fixture.sees(there, listener, EventKind::Migrated);
    fixture.sees(there, waiting, cm(CmEvent::ConnectRequest));
}

#[test]
fn a_listener_goes_to_another_core_whole_and_listens_on() {
    let (mut fixture, here, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    for _ in 0..3 {
        fixture.submit(listener, TO_SYNC).unwrap();
        fixture.no_call();
        assert!(fixture.is_sync(listener));
        assert_eq!(fixture.core.channel(listener), Some(device_channel));
        fixture.submit(listener, to(here)).unwrap();
        fixture.no_call();
        assert!(!fixture.is_sync(listener));
    }
    fixture.submit(listener, TO_SYNC).unwrap();
    let (released, channel) = fixture.core.release(listener).unwrap();
    assert_eq!(channel, device_channel);

    let (mut other, door) = CoreFixture::on(Acks::OnDelivery);
    let (listener, device_channel) = other.core.adopt(released).unwrap();
    assert_eq!(other.core.poll_readable(), Some(device_channel), "requests may have come meanwhile");
    other.submit(listener, to(door)).unwrap();
    other.no_call();
    let child = other.report_request(listener);
    other.sees(door, child, cm(CmEvent::ConnectRequest));
    other.does(child, accept());
}

#[test]
fn a_listener_that_lost_its_device_can_only_go() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.does(id, BIND);
    fixture.does(id, LISTEN);
    fixture.report_on(fixture.core.device_channel(id).unwrap(), raw(id, CmEvent::DeviceRemoval, 0));
    fixture.sees(here, id, cm(CmEvent::DeviceRemoval));
    fixture.makes(id, TO_SYNC, "create_event_channel");
    fixture.expect_call("migrate_id", Err(Errno::ENXIO));
    fixture.all_well();
}

#[test]
fn an_event_of_an_untaken_request_moves_along_too() {
    // The kernel reports no event of an id before its accept; a device may.
    for kind in [CmEvent::AddrChange, CmEvent::DeviceRemoval] {
        let (mut fixture, [here, there], listener) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Listening);
        let child = fixture.report_request(listener);
        fixture.report(child, kind);
        fixture.does(listener, to(there));
        fixture.no_event(here);
        fixture.sees(there, child, cm(CmEvent::ConnectRequest));
        fixture.sees(there, child, cm(kind));
        fixture.no_event(here);
    }
}

#[test]
fn a_listener_that_could_not_be_destroyed_listens_on_and_is_not_migrated_by_the_device() {
    let (mut fixture, [_here, there], listener) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(listener);
    fixture.fails(listener, Request::Destroy, "destroy_id", Errno::EBUSY);
    assert_eq!(fixture.state(listener), State::Failed);
    fixture.submit(listener, to(there)).unwrap();
    fixture.no_call();
    assert_eq!(fixture.channels_of(listener), (Some(there), device_channel));
}

#[test]
fn a_listener_without_a_device_that_the_device_moved_is_migrated_by_the_device_from_then_on() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(id).unwrap();
    fixture.report(id, CmEvent::DeviceRemoval);
    fixture.does(id, to(channel));
    assert_eq!(
        (fixture.core.device_channel(id), fixture.core.channel_info(device_channel).is_some()),
        (Some(channel), false)
    );
    // The id lives on, but no longer as a listener: it is on a channel that other ids may use.
    fixture.fails(id, Request::Destroy, "destroy_id", Errno::EBUSY);
    assert_eq!(fixture.state(id), State::Failed);
    fixture.makes(id, TO_SYNC, "create_event_channel");
    fixture.expect_call("migrate_id", OK);
    assert!(fixture.is_sync(id) && fixture.core.channel(id) != Some(channel));
}

/// The id of an untaken request may have been migrated and owe an ack for an event of its own. It is destroyed with
/// its listener once it is acked, however many other ids there are.
#[test]
fn a_child_that_owes_an_ack_is_destroyed_after_its_listener() {
    let mut fixture = CoreFixture::new();
    let [here, there] = [(); 2].map(|()| fixture.channel(Acks::Explicit));
    let listener = fixture.in_state(here, State::Listening);
    let children = [(); 5].map(|()| fixture.report_request(listener));
    let last = children[4];
    fixture.submit(last, to(there)).unwrap();
    fixture.all_well();
    fixture.report_on(there, raw(last, CmEvent::AddrChange, 0));
    let ack_token = fixture.core.poll_event(there).unwrap().ack_token.unwrap();
    fixture.submit(listener, Request::Destroy).unwrap();
    fixture.core.check();
    fixture.expect_call("destroy_id", OK);
    assert_eq!(fixture.core.summary().calls, 5, "four children, and the last one");
    fixture.all_well();
    assert_eq!((fixture.next_child(), fixture.core.ids().count()), (None, 1));
    fixture.core.ack(ack_token).unwrap();
    fixture.all_well();
    fixture.core.check();
    assert_eq!(fixture.core.ids().count(), 0);
}
