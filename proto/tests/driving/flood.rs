//! A driver whose peers ask more than its application takes.

use std::collections::BTreeSet;

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Drive, Errno, IdKey, Limits, PortSpace, RawEvent, Rest, Time, Turn, Watched,
};

use crate::device::{Driven, Script, Waiting, calls, channel_and_id, driven, fails, has, says};

/// So many requests wait at the device; each gets the key that the core gives it.
fn asked(drive: &mut Driven, listener: IdKey, requests: usize) -> ChannelKey {
    let line = drive.core().line(listener).unwrap();
    drive.device_mut().requests = Some((line, listener, requests));
    drive.readable(line);
    line
}

fn with(limits: Limits) -> Driven {
    Drive::new(Watched::new(Script::new(), Waiting::default()), limits)
}

const ROOMY: Limits = Limits { ids: 4096, reserved_ids: 16, channels: 8, ..Limits::LARGE };

#[test]
fn requests_beyond_the_backlog_stay_at_the_device_and_nobody_is_kept_awake() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 4).unwrap();
    asked(&mut drive, listener, 3000);
    assert_eq!(drive.settle(256), Rest::Look);
    while drive.settle(256) != Rest::Until(None) {}
    assert_eq!((drive.core().ids(), drive.device().unread()), (5, 2996));
    // As many as are taken are read.
    let mut seen = BTreeSet::new();
    while let Some(event) = drive.next_event(channel) {
        assert!(seen.insert(event.id));
        assert!(drive.device().unread() == 0 || drive.rest() == Rest::More);
        let _ = drive.settle(256);
        if seen.len() == 3000 {
            break;
        }
    }
    assert_eq!((seen.len(), drive.device().unread()), (3000, 0));
    assert_eq!(drive.settle(256), Rest::Until(None));
}

#[test]
fn a_flood_on_one_channel_does_not_delay_the_events_of_another() {
    // As many events as there may be, and requests to use them up.
    let mut drive = with(Limits { ids: 200, channels: 8, events: 64, ..Limits::SINGLE });
    let (busy, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 1024).unwrap();
    asked(&mut drive, listener, 1000);
    while drive.settle(256) != Rest::Until(None) {}
    assert_eq!(drive.core().ids(), 2 + 64, "64 requests are untaken");
    for _ in 0..3 {
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
        assert_eq!(drive.settle(256), Rest::Look);
        assert_eq!(drive.next_event(calm).unwrap().id, id);
        assert_eq!(drive.settle(256), Rest::Until(None));
    }
    assert!(drive.next_event(busy).is_some());
}

#[test]
fn a_listener_that_moves_with_its_requests_makes_no_more_calls_in_a_turn_than_the_budget_allows() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    drive.listen(listener, 0).unwrap();
    asked(&mut drive, listener, 3000);
    while drive.settle(256) != Rest::Until(None) {}
    assert_eq!((drive.core().ids(), drive.device().unread()), (1025, 1976));
    calls(&mut drive);
    drive.migrate(listener, Some(other), Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive).len(), 4);
    let (mut moved, mut most) = (4, 0);
    while moved < 1024 {
        let turn = drive.turn(64);
        let made = calls(&mut drive).len();
        (moved, most) = (moved + made, most.max(made));
        assert!(made > 0 && (turn == Turn::More || moved == 1024), "{turn:?} after {moved}");
    }
    assert_eq!((moved, most), (1024, 64));
    assert_eq!(std::iter::from_fn(|| drive.next_event(other)).count(), 1024);
    drive.close_channel(channel).unwrap();
    // And it goes with as many, in batches too.
    while drive.settle(256) != Rest::Until(None) {}
    calls(&mut drive);
    let before = drive.core().ids();
    drive.destroy(listener, Time::NEVER).unwrap();
    assert!(calls(&mut drive).len() <= 6);
    while drive.turn(64) == Turn::More {
        assert!(calls(&mut drive).len() <= 65);
    }
    assert_eq!(before - drive.core().ids(), 1025);
    drive.core().check();
}

/// While the others move, events of other channels are read.
#[test]
fn ids_that_follow_their_listener_do_not_keep_events_waiting() {
    let mut drive = with(ROOMY);
    let (_, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    drive.listen(listener, 0).unwrap();
    asked(&mut drive, listener, 1000);
    while drive.settle(256) != Rest::Until(None) {}
    drive.migrate(listener, Some(other), Time::NEVER).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.turn(8), Turn::More);
    assert_eq!(drive.next_event(calm).unwrap().id, id);
}

#[test]
fn a_paused_channel_stays_unread_and_keeps_nobody_awake() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.pause_channel(channel).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.settle(8), Rest::Until(None));
    drive.resume_channel(channel).unwrap();
    assert_eq!(drive.rest(), Rest::More);
    assert_eq!(drive.settle(8), Rest::Look);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    drive.pause_channel(channel).unwrap_err();
    drive.resume_channel(channel).unwrap_err();
}

#[test]
fn a_request_whose_id_cannot_be_moved_is_migrated_before_it_is_accepted() {
    let mut drive = driven();
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 1).unwrap();
    let line = asked(&mut drive, listener, 2);
    fails(&mut drive, "migrate_id", Errno::ENOMEM);
    assert_eq!(drive.settle(8), Rest::Look);
    let child = drive.next_event(channel).unwrap().id;
    assert_eq!(drive.core().line(child), Some(line));
    let param = crate::device::PARAM;
    let refused = drive.accept(child, param, &[], Time::NEVER).unwrap_err();
    assert_eq!(refused.errno(), Errno::EBUSY);
    drive.migrate(child, Some(channel), Time::NEVER).unwrap();
    drive.accept(child, param, &[], Time::NEVER).unwrap();
    // The listener's channel is full; this one is read.
    let _ = drive.settle(8);
    assert_eq!(drive.core().wants_event(line), None);
    says(&mut drive, child, CmEvent::Established);
    assert!(std::iter::from_fn(|| drive.next_event(channel)).any(|event| event.id == child));
}
