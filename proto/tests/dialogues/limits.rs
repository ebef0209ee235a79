//! Behaviour at the limits of a core.

use std::time::Duration;

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Core, Errno, EventKind, Limits, PortSpace, RefuseReason, Refused, Request, RequestKind,
    State,
};

use crate::fixture::{CoreFixture, LISTEN, RESOLVE, TO_SYNC, cm, connect, raw, to};

#[test]
fn at_the_limit_on_events_none_is_wanted_and_none_is_lost() {
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 4, events: 2, groups: 8, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::Explicit);
    let id = fixture.id(Some(channel));
    for status in 0..2 {
        assert!(fixture.core.wants_event(channel).is_some());
        fixture.report_status(id, CmEvent::AddrChange, status);
    }
    assert_eq!(fixture.core.wants_event(channel), None);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrChange)).status, 0);
    assert!(fixture.core.wants_event(channel).is_some());
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrChange)).status, 1);
}

#[test]
fn the_ends_of_synchronous_requests_do_not_fill_the_core() {
    let mut fixture = CoreFixture::with(Limits { ids: 2, channels: 3, events: 1, groups: 8, ..Limits::SINGLE });
    let ids = [fixture.id(None), fixture.id(None)];
    for id in ids {
        fixture.does(id, RESOLVE);
        assert!(fixture.core.wants_event(fixture.core.channel(id).unwrap()).is_some());
        fixture.report(id, CmEvent::AddrResolved);
    }
    assert_eq!(ids.map(|id| fixture.core.sync_result(id)), [Some(Ok(())); 2]);
}

#[test]
fn an_application_that_takes_no_events_does_not_fill_the_core_with_ends_of_migrations() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::OnDelivery);
    let id = fixture.in_state(here, State::Bound);
    let held = fixture.owes(here, id);
    fixture.submit_until(id, to(there), fixture.within(Duration::from_secs(1))).unwrap();
    fixture.passes(Duration::from_secs(1));
    for _ in 0..2 {
        fixture.refuses(id, to(there), RefuseReason::Busy(RequestKind::Migrate));
        fixture.refuses(id, TO_SYNC, RefuseReason::Busy(RequestKind::Migrate));
    }
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).status, -Errno::ETIMEDOUT.0);
    fixture.submit_until(id, to(there), fixture.within(Duration::from_secs(1))).unwrap();
    fixture.passes(Duration::from_secs(1));
    // A migration that waits for no ack ends with its call. The event below is the end of the one before.
    fixture.acks(held);
    fixture.does(id, to(there));
    assert_eq!(fixture.sees(there, id, EventKind::Migrated).status, -Errno::ETIMEDOUT.0);
}

#[test]
fn at_the_limit_on_ids_only_the_channels_of_listeners_wait() {
    let mut fixture = CoreFixture::with(Limits { ids: 2, channels: 4, events: 8, groups: 8, ..Limits::SINGLE });
    let (door, room) = (fixture.channel(Acks::OnDelivery), fixture.channel(Acks::OnDelivery));
    let id = fixture.in_state(room, State::RouteResolved);
    let listener = fixture.in_state(door, State::Listening);
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(room)), Err(Refused::Full("ids")));
    let device_channel = fixture.core.device_channel(listener).unwrap();
    assert_eq!(fixture.core.wants_event(device_channel), None, "the next event may be a request");
    assert!(fixture.core.wants_event(door).is_some(), "where its events are delivered none is reported");
    fixture.does(id, connect());
    assert!(fixture.core.wants_event(room).is_some());
    fixture.report_and_take(id, CmEvent::Established);
    fixture.does(id, Request::Destroy);
    fixture.report_request(listener);
    assert_eq!(fixture.core.wants_event(device_channel), None);
}

#[test]
fn a_channel_without_room_is_to_be_read_when_there_is() {
    let mut fixture = CoreFixture::with(Limits { ids: 2, channels: 4, events: 1, groups: 0, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::OnDelivery);
    let (listener, id) = (fixture.in_state(channel, State::Listening), fixture.id(Some(channel)));
    let device_channel = fixture.core.device_channel(listener).unwrap();
    while fixture.core.poll_readable().is_some() {}
    // Short of ids: only the listener's channel waits.
    for _ in 0..2 {
        assert_eq!(fixture.core.wants_event(device_channel), None);
        fixture.core.wait_for_room(device_channel);
        fixture.core.wait_for_room(channel);
        fixture.core.check();
        assert!(!fixture.core.has_work());
        assert_eq!(fixture.core.poll_readable(), None);
    }
    let waiting = fixture.core.clone();
    fixture.core.wait_for_room(device_channel);
    assert_eq!(fixture.core, waiting, "it waits once");
    fixture.does(id, Request::Destroy);
    assert!(fixture.core.has_work());
    assert_eq!((fixture.core.poll_readable(), fixture.core.poll_readable()), (Some(device_channel), None));
    // Short of events: each channel with untaken events waits.
    let child = fixture.report_request(listener);
    assert!(fixture.core.wants_event(channel).is_some(), "requests of others do not stop it");
    fixture.report_on(device_channel, raw(listener, CmEvent::AddrChange, 0));
    fixture.core.wait_for_room(device_channel);
    fixture.core.wait_for_room(channel);
    assert!(!fixture.core.has_work());
    fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
    assert!(!fixture.core.has_work());
    fixture.sees(channel, listener, cm(CmEvent::AddrChange));
    assert_eq!(
        (fixture.core.poll_readable(), fixture.core.poll_readable()),
        (Some(channel), None),
        "ids are full again"
    );
    fixture.does(child, Request::Destroy);
    assert_eq!(fixture.core.poll_readable(), Some(device_channel));
    // A channel that is closed no longer waits.
    fixture.id(Some(channel));
    let mut paused = fixture.core.clone();
    paused.pause_channel(device_channel).unwrap();
    let before = paused.clone();
    paused.wait_for_room(device_channel);
    assert_eq!(paused, before, "it waits to be resumed");
    fixture.core.wait_for_room(device_channel);
    fixture.does(listener, Request::Destroy);
    fixture.core.check();
}

#[test]
fn a_channel_that_waits_for_room_and_is_paused_or_fails_waits_for_its_resume() {
    let mut fixture = CoreFixture::with(Limits { ids: 2, channels: 4, events: 1, groups: 0, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(channel));
    fixture.report(id, CmEvent::AddrChange);
    fixture.core.poll_readable();
    let stops: [fn(&mut Core, ChannelKey); 2] = [
        |core, channel| core.pause_channel(channel).unwrap(),
        |core, channel| {
            while core.handle_unreadable(channel) {
                assert_eq!(core.poll_readable(), Some(channel))
            }
        },
    ];
    for stop in stops {
        let mut core = fixture.core.clone();
        core.wait_for_room(channel);
        stop(&mut core, channel);
        core.check();
        assert!(core.poll_event(channel).is_some());
        assert!(!core.may_have_event(channel), "there is room, and it waits to be resumed");
        // An event after all: the channel has not failed any more.
        core.handle_event(channel, raw(id, CmEvent::AddrChange, 0)).unwrap();
        core.check();
        assert!(core.poll_event(channel).is_some());
        core.resume_channel(channel).unwrap();
        assert_eq!((core.poll_readable(), core.poll_readable()), (Some(channel), None));
    }
    fixture.sees(channel, id, cm(CmEvent::AddrChange));
}

#[test]
fn a_full_core_refuses_and_changes_nothing() {
    let mut fixture = CoreFixture::with(Limits { ids: 3, channels: 2, events: 8, groups: 8, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(channel));
    fixture.id(None);
    let before = fixture.core.clone();
    assert_eq!(fixture.opens(Acks::Explicit), Err(Refused::Full("channels")));
    assert_eq!(fixture.creates(PortSpace::Tcp, None), Err(Refused::Full("channels")));
    let refused = fixture.submit(id, TO_SYNC).unwrap_err();
    assert!(refused.to_string().ends_with("the limit on channels is reached (Limits::channels; with cmid-mio, the number of its tokens), and the id needs its own"));
    assert_eq!(fixture.core, before);
}

#[test]
fn the_channel_of_a_listener_that_is_removed_needs_no_room_for_requests() {
    let mut fixture = CoreFixture::with(Limits { ids: 2, channels: 4, events: 4, groups: 0, ..Limits::SINGLE });
    let channel = fixture.channel(Acks::OnDelivery);
    let (listener, _other) = (fixture.in_state(channel, State::Listening), fixture.id(None));
    let device_channel = fixture.core.device_channel(listener).unwrap();
    while fixture.core.poll_readable().is_some() {}
    fixture.core.wait_for_room(device_channel);
    fixture.report_on(device_channel, raw(listener, CmEvent::DeviceRemoval, 0));
    assert_eq!(fixture.core.poll_readable(), Some(device_channel));
}

#[test]
fn a_key_names_nothing_once_its_id_is_gone() {
    let (mut fixture, channel, old) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.does(old, Request::Destroy);
    let new = fixture.id(Some(channel));
    assert_ne!(old, new);
    let before = fixture.core.clone();
    let refused = fixture.submit(old, LISTEN).unwrap_err();
    assert_eq!(refused.to_string(), format!("listen on {old}: there is no such id"));
    assert_eq!((fixture.core.state(old), fixture.core.channel(old), fixture.owed(old)), (None, None, 0));
    assert_eq!(fixture.core, before);
}
