//! What happens when it is full.

use std::time::Duration;

use cmid_proto::{Acks, CmEvent, Errno, EventKind, Limits, PortSpace, Refused, Request, State, Verb, Why};

use crate::fixture::{LISTEN, RESOLVE, Stage, TO_SYNC, cm, connect, raw, to};

#[test]
fn at_the_limit_on_events_none_is_wanted_and_none_is_lost() {
    let mut stage = Stage::with(Limits { ids: 4, channels: 4, events: 2, groups: 8, ..Limits::SINGLE });
    let channel = stage.channel(Acks::Explicit);
    let id = stage.id(Some(channel));
    for status in 0..2 {
        assert!(stage.core.wants_event(channel).is_some());
        stage.says_status(id, CmEvent::AddrChange, status);
    }
    assert_eq!(stage.core.wants_event(channel), None);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrChange)).status, 0);
    assert!(stage.core.wants_event(channel).is_some());
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrChange)).status, 1);
    stage.ends(&[id], &[channel]);
}

#[test]
fn the_ends_of_synchronous_requests_do_not_fill_the_core() {
    let mut stage = Stage::with(Limits { ids: 2, channels: 3, events: 1, groups: 8, ..Limits::SINGLE });
    let ids = [stage.id(None), stage.id(None)];
    for id in ids {
        stage.does(id, RESOLVE);
        assert!(stage.core.wants_event(stage.core.home(id).unwrap()).is_some());
        stage.says(id, CmEvent::AddrResolved);
    }
    assert_eq!(ids.map(|id| stage.core.sync_result(id)), [Some(Ok(())); 2]);
    stage.ends(&ids, &[]);
}

#[test]
fn an_application_that_takes_no_events_does_not_fill_the_core_with_ends_of_migrations() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks_until(id, to(there), stage.within(Duration::from_secs(1))).unwrap();
    stage.passes(Duration::from_secs(1));
    for _ in 0..2 {
        stage.refuses(id, to(there), Why::Busy(Verb::Migrate));
        stage.refuses(id, TO_SYNC, Why::Busy(Verb::Migrate));
    }
    assert_eq!(stage.sees(here, id, EventKind::Migrated).status, -Errno::ETIMEDOUT.0);
    stage.asks_until(id, to(there), stage.within(Duration::from_secs(1))).unwrap();
    stage.passes(Duration::from_secs(1));
    // One that waits for nothing ends by its call.
    stage.acks(held);
    stage.does(id, to(there));
    assert_eq!(stage.sees(there, id, EventKind::Migrated).status, -Errno::ETIMEDOUT.0);
    stage.ends(&[id], &[here, there]);
}

#[test]
fn at_the_limit_on_ids_only_the_channels_of_listeners_wait() {
    let mut stage = Stage::with(Limits { ids: 2, channels: 4, events: 8, groups: 8, ..Limits::SINGLE });
    let (door, room) = (stage.channel(Acks::OnDelivery), stage.channel(Acks::OnDelivery));
    let id = stage.in_state(room, State::RouteResolved);
    let listener = stage.in_state(door, State::Listening);
    assert_eq!(stage.core.create_id(Some(room), PortSpace::Tcp), Err(Refused::Full("ids")));
    let line = stage.core.line(listener).unwrap();
    assert_eq!(stage.core.wants_event(line), None, "the next event may be a request");
    assert!(stage.core.wants_event(door).is_some(), "where its events are delivered none is reported");
    stage.does(id, connect());
    assert!(stage.core.wants_event(room).is_some());
    stage.tells(id, CmEvent::Established);
    stage.does(id, Request::Destroy);
    let child = stage.says_request(listener);
    assert_eq!(stage.core.wants_event(line), None);
    stage.ends(&[child, listener], &[door, room]);
}

#[test]
fn a_channel_without_room_is_to_be_read_when_there_is() {
    let mut stage = Stage::with(Limits { ids: 2, channels: 4, events: 1, groups: 0, ..Limits::SINGLE });
    let channel = stage.channel(Acks::OnDelivery);
    let (listener, id) = (stage.in_state(channel, State::Listening), stage.id(Some(channel)));
    let line = stage.core.line(listener).unwrap();
    while stage.core.poll_readable().is_some() {}
    // For want of ids: only the listener's.
    for _ in 0..2 {
        assert_eq!(stage.core.wants_event(line), None);
        stage.core.wait_for_room(line);
        stage.core.wait_for_room(channel);
        stage.core.check();
        assert!(!stage.core.has_work());
        assert_eq!(stage.core.poll_readable(), None);
    }
    stage.does(id, Request::Destroy);
    assert!(stage.core.has_work());
    assert_eq!((stage.core.poll_readable(), stage.core.poll_readable()), (Some(line), None));
    // For want of events: any on which some are untaken.
    let child = stage.says_request(listener);
    assert!(stage.core.wants_event(channel).is_some(), "requests of others do not stop it");
    stage.says_on(line, raw(listener, CmEvent::AddrChange, 0));
    stage.core.wait_for_room(line);
    stage.core.wait_for_room(channel);
    assert!(!stage.core.has_work());
    stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    assert!(!stage.core.has_work());
    stage.sees(channel, listener, cm(CmEvent::AddrChange));
    assert_eq!((stage.core.poll_readable(), stage.core.poll_readable()), (Some(channel), None), "ids are full again");
    stage.does(child, Request::Destroy);
    assert_eq!(stage.core.poll_readable(), Some(line));
    // What waits goes with its channel.
    let other = stage.id(Some(channel));
    stage.core.wait_for_room(line);
    stage.does(listener, Request::Destroy);
    stage.core.check();
    stage.ends(&[other], &[channel]);
}

#[test]
fn a_full_core_refuses_and_changes_nothing() {
    let mut stage = Stage::with(Limits { ids: 3, channels: 2, events: 8, groups: 8, ..Limits::SINGLE });
    let channel = stage.channel(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    let other = stage.id(None);
    let before = stage.core.clone();
    assert_eq!(stage.core.open_channel(Acks::Explicit), Err(Refused::Full("channels")));
    assert_eq!(stage.core.create_id(None, PortSpace::Tcp), Err(Refused::Full("channels")));
    let refused = stage.asks(id, TO_SYNC).unwrap_err();
    assert!(refused.to_string().ends_with("no channel is left for the id alone"));
    assert_eq!(stage.core, before);
    stage.ends(&[id, other], &[channel]);
}

#[test]
fn a_key_names_nothing_once_its_id_is_gone() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let old = stage.id(Some(channel));
    stage.does(old, Request::Destroy);
    let new = stage.id(Some(channel));
    assert_ne!(old, new);
    let before = stage.core.clone();
    let refused = stage.asks(old, LISTEN).unwrap_err();
    assert_eq!(refused.to_string(), format!("listen on {old}: there is no such id"));
    assert_eq!((stage.core.state(old), stage.core.home(old), stage.core.owed(old)), (None, None, 0));
    assert_eq!(stage.core, before);
    stage.ends(&[new], &[channel]);
}
