//! A listener has a channel of its own at the device, and moves without the device.

use cmid_proto::{Acks, Call, CmEvent, Errno, EventKind, Limits, RawEvent, Request, State, Verb};

use crate::fixture::{BIND, LISTEN, OK, Stage, TO_SYNC, accept, cm, raw, to};

#[test]
fn a_listen_opens_a_channel_moves_the_id_there_and_listens() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.asks(id, LISTEN).unwrap();
    let (token, call) = stage.takes_call("create_event_channel");
    let Call::OpenChannel { channel: line } = call else { panic!("{call:?}") };
    assert_eq!(stage.answers(token, OK), None);
    let (token, call) = stage.takes_call("migrate_id");
    assert_eq!(call, Call::Migrate { id, from: here, to: line });
    assert_eq!(stage.answers(token, OK), None);
    let (token, call) = stage.takes_call("listen");
    assert_eq!(call, Call::Listen { id, backlog: 8 });
    assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
    assert_eq!((stage.core.line(id), stage.core.home(id)), (Some(line), Some(here)));
    assert!(!stage.core.is_sync(id));
    // What was pending when it moved waits there, and the kernel wakes no one.
    assert_eq!(stage.core.poll_readable(), Some(line));
    stage.ends(&[id], &[here]);
}

/// Nothing that comes on the channel before the id is there is a request: what is reserved is no reason to leave it in the kernel.
#[test]
fn the_channel_of_a_listener_is_read_like_any_other_until_the_id_is_moved_there() {
    let mut stage = Stage::with(Limits { ids: 8, channels: 8, ..Limits::SINGLE }).reserving(4, 0);
    let here = stage.channel(Acks::OnDelivery);
    let id = (0..4).map(|_| stage.id(Some(here))).last().unwrap();
    stage.asks(id, LISTEN).unwrap();
    let (token, call) = stage.takes_call("create_event_channel");
    let Call::OpenChannel { channel: line } = call else { panic!("{call:?}") };
    stage.answers(token, OK);
    let (token, _) = stage.takes_call("migrate_id");
    assert!(stage.core.wants_event(line).is_some());
    stage.answers(token, OK);
    stage.expect_call("listen", OK);
    assert_eq!(stage.core.wants_event(line), None);
}

#[test]
fn a_listen_that_fails_half_way_leaves_the_id_as_it_was_and_can_be_repeated() {
    for fails in 0..3 {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(here, State::Bound);
        stage.asks(id, LISTEN).unwrap();
        let mut failure = None;
        for (at, call) in ["create_event_channel", "migrate_id", "listen"].into_iter().enumerate().take(fails + 1) {
            let outcome = if at == fails { Err(Errno::EMFILE) } else { OK };
            failure = stage.expect_call(call, outcome).map(|ended| ended.result.unwrap_err().call);
            assert_eq!(failure, (at == fails).then_some(call));
        }
        assert!(failure.is_some());
        assert_eq!((stage.state(id), stage.core.home(id)), (State::Bound, Some(here)));
        stage.all_well();
        stage.does(id, LISTEN);
        assert_eq!(stage.state(id), State::Listening);
        assert_eq!(stage.core.channels(), 2);
        stage.ends(&[id], &[here]);
    }
}

#[test]
fn a_destroy_that_overtakes_a_listen_leaves_nothing() {
    for made in 0..3 {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(here, State::Bound);
        stage.asks(id, LISTEN).unwrap();
        for call in ["create_event_channel", "migrate_id", "listen"].into_iter().take(made) {
            stage.expect_call(call, OK);
        }
        stage.asks(id, Request::Destroy).unwrap();
        stage.all_well();
        if made < 3 {
            stage.sees(here, id, EventKind::Destroyed);
        }
        stage.ends(&[], &[here]);
    }
}

#[test]
fn a_listener_moves_at_once_with_its_undelivered_requests_and_their_ids() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let listener = stage.in_state(here, State::Listening);
    let line = stage.core.line(listener);
    let taken = stage.says_request(listener);
    stage.sees(here, taken, cm(CmEvent::ConnectRequest));
    let (first, second) = (stage.says_request(listener), stage.says_request(listener));
    stage.asks(listener, to(there)).unwrap();
    assert!(!stage.core.waits_for_acks(listener, Verb::Migrate));
    assert_eq!((stage.core.home(listener), stage.core.line(listener)), (Some(there), line));
    stage.no_call();
    stage.no_event(here);
    let third = stage.says_request(listener);
    for child in [first, second, third] {
        stage.sees(there, child, cm(CmEvent::ConnectRequest));
        assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(there), line));
    }
    assert_eq!((stage.core.home(taken), stage.core.line(taken)), (Some(here), line), "what was delivered stays");
    for (child, home) in [(taken, here), (second, there)] {
        stage.asks(child, accept()).unwrap();
        let (token, call) = stage.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: line.unwrap(), to: home });
        stage.answers(token, OK);
        stage.expect_call("accept", OK);
        stage.tells(child, CmEvent::Established);
    }
    stage.ends(&[listener, taken, first, second, third], &[here, there]);
}

#[test]
fn a_listener_whose_requests_are_not_acked_moves_when_they_are() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let listener = stage.in_state(here, State::Listening);
    let child = stage.says_request(listener);
    let held = stage.expect_event(here, child, cm(CmEvent::ConnectRequest));
    let waiting = stage.says_request(listener);
    stage.asks(listener, to(there)).unwrap();
    assert!(stage.core.waits_for_acks(listener, Verb::Migrate));
    stage.acks(held);
    stage.all_well();
    stage.sees(there, listener, EventKind::Migrated);
    stage.sees(there, waiting, cm(CmEvent::ConnectRequest));
    stage.ends(&[listener, child, waiting], &[here, there]);
}

#[test]
fn a_listener_goes_to_another_core_whole_and_listens_on() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(here, State::Listening);
    let line = stage.core.line(listener).unwrap();
    for _ in 0..3 {
        stage.asks(listener, TO_SYNC).unwrap();
        stage.no_call();
        assert!(stage.core.is_sync(listener));
        assert_eq!(stage.core.home(listener), Some(line));
        stage.asks(listener, to(here)).unwrap();
        stage.no_call();
        assert!(!stage.core.is_sync(listener));
    }
    stage.asks(listener, TO_SYNC).unwrap();
    let (released, channel) = stage.core.release(listener).unwrap();
    assert_eq!(channel, line);
    stage.ends(&[], &[here]);

    let (mut other, door) = Stage::on(Acks::OnDelivery);
    let (listener, line) = other.core.adopt(released).unwrap();
    assert_eq!(other.core.poll_readable(), Some(line), "requests may have come meanwhile");
    other.asks(listener, to(door)).unwrap();
    other.no_call();
    let child = other.says_request(listener);
    other.sees(door, child, cm(CmEvent::ConnectRequest));
    other.does(child, accept());
    other.ends(&[listener, child], &[door]);
}

#[test]
fn a_listener_that_lost_its_device_can_only_go() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(here));
    stage.does(id, BIND);
    stage.does(id, LISTEN);
    stage.says_on(stage.core.line(id).unwrap(), raw(id, CmEvent::DeviceRemoval, 0));
    stage.sees(here, id, cm(CmEvent::DeviceRemoval));
    stage.asks(id, TO_SYNC).unwrap();
    stage.expect_call("create_event_channel", OK);
    stage.expect_call("migrate_id", Err(Errno::ENXIO));
    stage.all_well();
    stage.ends(&[id], &[here]);
}

#[test]
fn an_event_of_an_id_that_nobody_has_heard_of_moves_along_too() {
    // The kernel reports none before the id is accepted; a device may.
    for kind in [CmEvent::AddrChange, CmEvent::DeviceRemoval] {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let there = stage.channel(Acks::OnDelivery);
        let listener = stage.in_state(here, State::Listening);
        let child = stage.says_request(listener);
        stage.says(child, kind);
        stage.does(listener, to(there));
        stage.no_event(here);
        stage.sees(there, child, cm(CmEvent::ConnectRequest));
        stage.sees(there, child, cm(kind));
        stage.no_event(here);
        stage.ends(&[listener, child], &[here, there]);
    }
}

#[test]
fn a_listener_that_could_not_be_destroyed_listens_on_and_is_not_migrated_by_the_device() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let listener = stage.in_state(here, State::Listening);
    let line = stage.core.line(listener);
    stage.asks(listener, Request::Destroy).unwrap();
    assert!(stage.expect_call("destroy_id", Err(Errno::EBUSY)).unwrap().result.is_err());
    assert_eq!(stage.state(listener), State::Failed);
    stage.asks(listener, to(there)).unwrap();
    stage.no_call();
    assert_eq!((stage.core.home(listener), stage.core.line(listener)), (Some(there), line));
    stage.ends(&[listener], &[here, there]);
}

#[test]
fn a_listener_without_a_device_that_the_device_moved_is_migrated_by_the_device_from_then_on() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Listening);
    let line = stage.core.line(id).unwrap();
    stage.says(id, CmEvent::DeviceRemoval);
    stage.does(id, to(channel));
    assert_eq!((stage.core.line(id), stage.core.has_channel(line)), (Some(channel), false));
    // It lives on, and not as a listener: it is on a channel that others may be on.
    stage.asks(id, Request::Destroy).unwrap();
    stage.expect_call("destroy_id", Err(Errno::EBUSY));
    assert_eq!(stage.state(id), State::Failed);
    stage.asks(id, TO_SYNC).unwrap();
    stage.expect_call("create_event_channel", OK);
    stage.expect_call("migrate_id", OK);
    assert!(stage.core.is_sync(id) && stage.core.home(id) != Some(channel));
    stage.ends(&[id], &[channel]);
}

/// The id of an untaken request may have been moved away and owe an ack for an event of its own: with its listener it is destroyed
/// once that is in, however many others are.
#[test]
fn a_child_that_owes_an_ack_is_destroyed_after_its_listener() {
    let mut stage = Stage::new();
    let [here, there] = [(); 2].map(|()| stage.channel(Acks::Explicit));
    let listener = stage.in_state(here, State::Listening);
    let line = stage.core.line(listener).unwrap();
    let children = [(); 5].map(|()| {
        let child = stage.core.wants_event(line).unwrap();
        stage.says_on(line, RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) });
        stage.all_well();
        child
    });
    let last = children[4];
    stage.asks(last, to(there)).unwrap();
    stage.all_well();
    stage.says_on(there, raw(last, CmEvent::AddrChange, 0));
    let receipt = stage.core.poll_event(there).unwrap().receipt.unwrap();
    stage.asks(listener, Request::Destroy).unwrap();
    stage.core.check();
    stage.all_well();
    assert_eq!((stage.core.poll_child(), stage.core.ids()), (None, 1));
    stage.core.ack(receipt).unwrap();
    stage.all_well();
    stage.core.check();
    assert_eq!(stage.core.ids(), 0);
}
