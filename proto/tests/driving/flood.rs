//! A driver that receives more requests than its application takes.

use std::collections::BTreeSet;

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Drive, Errno, IdKey, Limits, Next, PolledDevice, PortSpace, RawEvent, State, Time,
};

use crate::device::{Driven, RecordingPoller, Script, calls, channel_and_id, driven, fails, has, report};

/// Queues `requests` connection requests at the device. Each gets the key that the core gives it.
fn queue_requests(drive: &mut Driven, listener: IdKey, requests: usize) -> ChannelKey {
    let device_channel = drive.core().device_channel(listener).unwrap();
    drive.device_mut().requests = Some((device_channel, listener, requests));
    drive.readable(device_channel);
    device_channel
}

fn with(limits: Limits) -> Driven {
    Drive::new(PolledDevice::new(Script::new(), RecordingPoller::default()), limits)
}

const ROOMY: Limits = Limits { ids: 4096, reserved_ids: 16, channels: 8, ..Limits::LARGE };

#[test]
fn requests_beyond_the_backlog_stay_at_the_device_and_wake_no_wait() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 4).unwrap();
    queue_requests(&mut drive, listener, 3000);
    assert_eq!(drive.run(256), Next::Deliver);
    while drive.run(256) != Next::Wait(None) {}
    assert_eq!((drive.core().ids(), drive.device().unread()), (5, 2996));
    // The number of requests read equals the number taken.
    let mut seen = BTreeSet::new();
    while let Some(event) = drive.next_event(channel) {
        assert!(seen.insert(event.id));
        assert!(drive.device().unread() == 0 || drive.next_action() == Next::Again);
        let _ = drive.run(256);
        if seen.len() == 3000 {
            break;
        }
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
    while drive.run(256) != Next::Wait(None) {}
    assert_eq!(drive.core().ids(), 2 + 64, "64 requests are untaken");
    for _ in 0..3 {
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
        assert_eq!(drive.run(256), Next::Deliver);
        assert_eq!(drive.next_event(calm).unwrap().id, id);
        assert_eq!(drive.run(256), Next::Wait(None));
    }
    assert!(drive.next_event(busy).is_some());
}

#[test]
fn a_listener_moves_with_its_requests_without_a_call_and_goes_with_them_in_batches() {
    let mut drive = with(ROOMY);
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    drive.listen(listener, 0).unwrap();
    calls(&mut drive);
    queue_requests(&mut drive, listener, 3000);
    while drive.run(256) != Next::Wait(None) {}
    assert_eq!((drive.core().ids(), drive.device().unread()), (1025, 1976));
    drive.migrate(listener, Some(other), Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    assert_eq!(calls(&mut drive), ["destroy_event_channel"]);
    assert_eq!(std::iter::from_fn(|| drive.next_event(other)).count(), 1024);
    while drive.run(256) != Next::Wait(None) {}
    assert!(calls(&mut drive).is_empty());
    let before = drive.core().ids();
    drive.destroy(listener, Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive).len(), 5);
    let mut most = 0;
    while drive.run(64) == Next::Again {
        most = most.max(calls(&mut drive).len());
    }
    assert_eq!((before - drive.core().ids(), most), (1025, 64));
    drive.core().check();
}

/// Events of other channels are read while the ids of requests are destroyed.
#[test]
fn ids_that_go_with_their_listener_do_not_keep_events_waiting() {
    let mut drive = with(ROOMY);
    let (_, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (calm, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.listen(listener, 0).unwrap();
    queue_requests(&mut drive, listener, 1000);
    while drive.run(256) != Next::Wait(None) {}
    drive.destroy(listener, Time::NEVER).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.run(8), Next::Again);
    assert_eq!(drive.next_event(calm).unwrap().id, id);
}

#[test]
fn a_paused_channel_stays_unread_and_wakes_no_wait() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.pause_channel(channel).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.run(8), Next::Wait(None));
    drive.resume_channel(channel).unwrap();
    assert_eq!(drive.next_action(), Next::Again);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    drive.pause_channel(channel).unwrap_err();
    drive.resume_channel(channel).unwrap_err();
}

#[test]
fn a_request_whose_id_cannot_be_moved_is_accepted_again() {
    let mut drive = driven();
    let (channel, listener) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
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
    while drive.run(8) != Next::Wait(None) {}
    let reads = drive.device().reads;
    drive.accept(child, param, &[], Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive), ["migrate_id", "migrate_id", "accept"]);
    // Nothing is read after the accept.
    assert_eq!((drive.run(8), drive.device().reads), (Next::Wait(None), reads));
    // The listener's channel is full; the channel of the accepted id is read.
    assert_eq!(drive.core().wants_event(device_channel), None);
    report(&mut drive, child, CmEvent::Established);
    assert!(std::iter::from_fn(|| drive.next_event(channel)).any(|event| event.id == child));
}
