//! A driver that receives more requests than its application takes.

use std::collections::BTreeSet;

use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Errno, IdKey, Limits, Next, PortSpace, RawEvent, State, Time};

use crate::device::{Driven, RecordingPoller, Script, calls, channel_and_id, delivers, driven, fails, has, with_an_id};

/// Queues `requests` connection requests at the device. Each gets the key that the core gives it.
fn queue_requests(drive: &mut Driven, listener: IdKey, requests: usize) -> ChannelKey {
    let device_channel = drive.core().device_channel(listener).unwrap();
    drive.device_mut().requests = Some((device_channel, listener, requests));
    drive.readable(device_channel);
    device_channel
}

fn with(limits: Limits) -> Driven {
    Drive::with(Script::new(), RecordingPoller::default(), (), limits)
}

/// Makes turns until none has work. What is in the application's queues stays there.
fn settle(drive: &mut Driven) {
    for _ in 0..10_000 {
        let _ = drive.run(256);
        if !drive.has_work() {
            return;
        }
    }
    panic!("there is always work");
}

const ROOMY: Limits = Limits { ids: 4096, reserved_ids: 16, channels: 8, ..Limits::LARGE };

#[test]
fn requests_beyond_the_backlog_stay_at_the_device_and_wake_no_wait() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 4).unwrap();
    queue_requests(&mut drive, listener, 3000);
    assert_eq!(drive.run(256), Next::Deliver);
    settle(&mut drive);
    assert_eq!((drive.core().ids().count(), drive.device().unread()), (5, 2996));
    let reads = drive.device().reads;
    // The result is the same until the application takes a request, and nothing is read.
    for _ in 0..2 {
        assert_eq!((drive.run(256), drive.has_work()), (Next::Deliver, false));
    }
    assert_eq!(drive.device().reads, reads);
    // The number of requests read equals the number taken.
    let mut seen = BTreeSet::new();
    while let Some(event) = drive.next_event(channel) {
        assert!(seen.insert(event.id));
        let unread = drive.device().unread();
        assert!(unread == 0 || drive.has_work());
        let _ = drive.run(256);
        assert_eq!(drive.device().unread(), unread.saturating_sub(1));
    }
    assert_eq!((seen.len(), drive.device().unread()), (3000, 0));
    assert_eq!(drive.run(256), Next::Wait(None));
}

#[test]
fn a_flood_on_one_channel_does_not_delay_the_events_of_another() {
    // The requests use up the limit on events.
    let mut drive = with(Limits { ids: 200, channels: 8, events: 64, ..Limits::SINGLE });
    let (busy, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 1024).unwrap();
    queue_requests(&mut drive, listener, 1000);
    settle(&mut drive);
    assert_eq!(drive.core().ids().count(), 2 + 64, "64 requests are untaken");
    for _ in 0..3 {
        let before = drive.device().reads;
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
        assert_eq!(drive.run(256), Next::Deliver);
        assert_eq!(drive.next_event(calm).unwrap().id, id);
        assert_eq!(drive.device().reads - before, 1, "nothing else is read");
        assert!(drive.next_event(calm).is_none());
        // What is left is the application's.
        assert_eq!((drive.run(256), drive.has_work()), (Next::Deliver, false));
    }
    assert!(drive.next_event(busy).is_some());
}

/// Requests that come as fast as they are taken are read by the turn, and an application that looks at one channel only
/// reads that channel.
#[test]
fn a_flood_that_is_taken_does_not_delay_the_events_of_another_channel() {
    let mut drive = with(ROOMY);
    let (busy, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 0).unwrap();
    queue_requests(&mut drive, listener, 3000);
    for _ in 0..20 {
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
        let before = drive.device().reads;
        assert_eq!(drive.run(64), Next::Deliver);
        assert_eq!(drive.device().reads - before, 1, "an event may be waiting for the application");
        assert_eq!(drive.next_event(calm).unwrap().id, id);
        assert_eq!(std::iter::from_fn(|| drive.next_event(busy)).count(), 1);
        assert!(drive.next_event(calm).is_none());
    }
}

/// Many events in a row that concern no id do not keep the application in one call, and are not forgotten.
#[test]
fn a_flood_of_events_that_are_not_delivered_lets_the_application_go_on() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    let gone = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.destroy(gone, Time::NEVER).unwrap();
    drive.device_mut().events.extend([(channel, RawEvent::new(gone, CmEvent::AddrChange)); 100]);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.run(8), Next::Deliver);
    assert!(drive.next_event(channel).is_none());
    let left = drive.device().events.len();
    assert!((1..100).contains(&left), "{left}");
    // No new report is needed.
    delivers(&mut drive, channel, id);
    assert!(drive.next_event(channel).is_none());
    assert_eq!((drive.run(8), drive.core().summary().counters.stray), (Next::Wait(None), 100));
}

#[test]
fn a_listener_moves_with_its_requests_without_a_call_and_goes_with_them_in_batches() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    drive.listen(listener, 0).unwrap();
    calls(&mut drive);
    queue_requests(&mut drive, listener, 3000);
    settle(&mut drive);
    assert_eq!((drive.core().ids().count(), drive.device().unread()), (1025, 1976));
    drive.migrate(listener, Some(other), Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    assert_eq!(calls(&mut drive), ["destroy_event_channel"]);
    assert_eq!(std::iter::from_fn(|| drive.next_event(other)).count(), 1024);
    settle(&mut drive);
    assert_eq!(drive.device().unread(), 952);
    assert!(calls(&mut drive).is_empty());
    let before = drive.core().ids().count();
    drive.destroy(listener, Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive).len(), 5);
    let mut most = 0;
    while drive.run(64) == Next::Again {
        most = most.max(calls(&mut drive).len());
    }
    assert_eq!((before - drive.core().ids().count(), most), (1025, 64));
    drive.core().check();
}

/// Neither do events wait for the destruction of the ids of requests, nor does that wait for the application.
#[test]
fn ids_that_go_with_their_listener_do_not_keep_events_waiting() {
    let mut drive = with(ROOMY);
    let (_, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 0).unwrap();
    queue_requests(&mut drive, listener, 1000);
    settle(&mut drive);
    drive.destroy(listener, Time::NEVER).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    for _ in 0..3 {
        let ids = drive.core().ids().count();
        assert_eq!(drive.run(8), Next::Deliver);
        assert_eq!(ids - drive.core().ids().count(), 8);
    }
    assert_eq!(drive.next_event(calm).unwrap().id, id);
    assert!(drive.next_event(calm).is_none());
    assert_eq!(drive.run(8), Next::Again);
    settle(&mut drive);
    assert_eq!((drive.core().ids().count(), drive.run(8)), (1, Next::Wait(None)));
}

#[test]
fn a_paused_channel_stays_unread_and_wakes_no_wait() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.pause_channel(channel).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.run(8), Next::Wait(None));
    assert!(drive.next_event(channel).is_none());
    assert_eq!((drive.device().reads, drive.has_work()), (0, false));
    drive.resume_channel(channel).unwrap();
    assert_eq!(drive.next_action(), Next::Deliver);
    delivers(&mut drive, channel, id);
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    drive.pause_channel(channel).unwrap_err();
    drive.resume_channel(channel).unwrap_err();
}

/// A paused channel is left to itself while others are read, wherever it stands among them.
#[test]
fn a_paused_channel_among_others_does_not_keep_the_driver_awake() {
    for paused_at in 0..3 {
        let mut drive = driven();
        let all = [(); 3].map(|()| channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp));
        drive.pause_channel(all[paused_at].0).unwrap();
        for (_, id) in all {
            has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
        }
        for (at, (channel, _)) in all.into_iter().enumerate() {
            if at != paused_at {
                assert_eq!(drive.run(8), Next::Deliver);
                assert_eq!(std::iter::from_fn(|| drive.next_event(channel)).count(), 1);
            }
        }
        assert_eq!((drive.run(8), drive.device().events.len()), (Next::Wait(None), 1));
        let (channel, id) = all[paused_at];
        drive.resume_channel(channel).unwrap();
        delivers(&mut drive, channel, id);
    }
}

/// New connections stop while the channel of their listener at the device is paused.
#[test]
fn a_paused_listener_leaves_its_requests_unread_and_wakes_no_wait() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 2).unwrap();
    let device_channel = drive.core().device_channel(listener).unwrap();
    drive.pause_channel(device_channel).unwrap();
    queue_requests(&mut drive, listener, 1);
    assert_eq!((drive.run(8), drive.device().unread()), (Next::Wait(None), 1));
    drive.resume_channel(device_channel).unwrap();
    assert_eq!(drive.next_action(), Next::Again);
    assert_eq!((drive.run(8), drive.device().unread()), (Next::Deliver, 0));
    assert!(drive.next_event(channel).is_some());
    assert_eq!(drive.run(8), Next::Wait(None));
}

#[test]
fn a_request_whose_id_cannot_be_moved_is_accepted_again() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 1).unwrap();
    let device_channel = queue_requests(&mut drive, listener, 2);
    assert_eq!(drive.run(8), Next::Deliver);
    let child = drive.next_event(channel).unwrap().id;
    assert_eq!(drive.core().device_channel(child), Some(device_channel));
    let param = crate::device::PARAM;
    calls(&mut drive);
    fails(&mut drive, "migrate_id", Errno::ENOMEM);
    let failed = drive.accept(child, param, &[], Time::NEVER).unwrap_err();
    assert_eq!((failed.errno(), drive.core().state(child)), (Errno::ENOMEM, Some(State::Requested)));
    settle(&mut drive);
    let reads = drive.device().reads;
    drive.accept(child, param, &[], Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive), ["migrate_id", "migrate_id", "accept"]);
    // Nothing is read after the accept. The second request is undelivered.
    assert_eq!((drive.run(8), drive.has_work(), drive.device().reads), (Next::Deliver, false, reads));
    // The listener's channel is full; the channel of the accepted id is read.
    assert_eq!(drive.core().wants_event(device_channel), None);
    has(&mut drive, RawEvent::new(child, CmEvent::Established));
    assert_eq!(drive.run(8), Next::Deliver);
    assert!(std::iter::from_fn(|| drive.next_event(channel)).any(|event| event.id == child));
}
