//! Turns: the channels that they read, when they report more work, and when a driver may sleep.

use std::time::Duration;

use cmid_proto::{
    Acks, CmEvent, Errno, Error, Fault, Next, PortSpace, Progress, RawEvent, Refused, State, Target, Time,
};

use crate::device::{
    LIMITS, addr, calls, channel_and_id, delivers, driven, fails, has, is_empty, report, requested, routed, take,
    with_an_id,
};

const CHANGE: CmEvent = CmEvent::AddrChange;

/// An application that takes no events of a channel pauses it.
#[test]
fn what_waits_on_a_paused_channel_is_no_reason_to_run_the_application() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 2).unwrap();
    let first = requested(&mut drive, listener);
    assert_eq!(drive.next_action(), Next::Deliver);
    drive.pause_channel(channel).unwrap();
    drive.pause_channel(channel).unwrap();
    let second = requested(&mut drive, listener);
    assert!(!drive.core().has_events());
    while drive.run(8) != Next::Wait(None) {}
    drive.core().check();
    // It may be taken nevertheless.
    assert_eq!(drive.next_event(channel).unwrap().id, first);
    drive.resume_channel(channel).unwrap();
    drive.core().check();
    delivers(&mut drive, channel, second);
    assert!(drive.next_event(channel).is_none());
    while drive.run(8) != Next::Wait(None) {}
}

#[test]
fn what_an_event_leads_to_is_done_before_the_next_one_is_read() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    routed(&mut drive, id);
    drive.connect(id, crate::device::PARAM, b"", Time::NEVER).unwrap();
    take(&mut drive, id, CmEvent::ConnectResponse);
    drive.establish(id).unwrap();
    drive.teardown(id, Time::NEVER).unwrap();
    while drive.next_event(channel).is_some() {}
    calls(&mut drive);
    // The core answers the peer's disconnect.
    has(&mut drive, RawEvent::new(id, CmEvent::Disconnected));
    has(&mut drive, RawEvent::new(id, CHANGE));
    assert_eq!(drive.next_event(channel).unwrap().cm(), Some(CmEvent::Disconnected));
    assert_eq!((calls(&mut drive), drive.device().events.len()), (vec!["disconnect"], 1));
    assert_eq!(std::iter::from_fn(|| drive.next_event(channel)).count(), 1);
}

/// Events of an id in synchronous mode that end no request wait in the core.
#[test]
fn at_the_limit_on_events_a_channel_waits_until_there_is_room() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    let sync = drive.create_id(None, PortSpace::Tcp).unwrap();
    for _ in 0..=LIMITS.events {
        has(&mut drive, RawEvent::new(sync, CHANGE));
    }
    // Each event is reported once, whether it is taken or not.
    for _ in 0..LIMITS.events {
        assert_eq!(drive.run(64), Next::Deliver);
    }
    assert_eq!(drive.run(64), Next::Wait(None));
    assert_eq!(drive.device().events.len(), 1, "no room for the last");
    // A channel without an untaken event is read nevertheless.
    has(&mut drive, RawEvent::new(id, CHANGE));
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.run(64), Next::Wait(None));
    // The events go to the channel, and the one that had no room is read there.
    drive.migrate(sync, Some(channel), Time::NEVER).unwrap();
    drive.device_mut().events[0].0 = channel;
    assert_eq!(drive.run(64), Next::Deliver);
    assert_eq!(std::iter::from_fn(|| drive.next_event(channel)).count(), LIMITS.events as usize + 1);
    assert_eq!(drive.run(64), Next::Wait(None));
}

#[test]
fn at_the_limit_on_ids_only_the_channels_of_listeners_wait_and_the_driver_sleeps() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 1).unwrap();
    let mut ids = Vec::new();
    while let Ok(id) = drive.create_id(Some(channel), PortSpace::Tcp) {
        ids.push(id);
    }
    assert_eq!(drive.core().ids().count(), LIMITS.ids as usize);
    // The event is not a request, but before the read it could have been one.
    has(&mut drive, RawEvent::new(listener, CHANGE));
    has(&mut drive, RawEvent::new(ids[0], CHANGE));
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().id, ids[0]);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(drive.destroy(ids[1], Time::NEVER).unwrap(), Progress::Done);
    assert_eq!(drive.next_action(), Next::Again);
    assert_ne!(drive.run(8), Next::Again);
    assert_eq!(drive.next_event(channel).unwrap().id, listener);
}

#[test]
fn a_driver_sleeps_until_the_next_deadline_and_acts_on_it_once() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.set_now(Time(1_000));
    let deadline = drive.within(Duration::from_nanos(500));
    drive.resolve_addr(id, None, addr(2), deadline).unwrap();
    assert_eq!(drive.run(8), Next::Wait(Some(deadline)));
    assert_eq!(drive.next_timeout(), Some(Time(1_500)));
    // A time before the last one is ignored.
    drive.set_now(Time(1_500));
    drive.set_now(Time(3));
    assert_eq!(drive.now(), Time(1_500));
    assert!(drive.has_work());
    assert_eq!(drive.next_action(), Next::Again);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.core().state(id), Some(State::Failed));
    assert!(drive.next_event(channel).is_some());
    assert_eq!(drive.run(8), Next::Wait(None));
}

#[test]
fn faults_of_a_channel_are_reported_and_the_loop_goes_on() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.device_mut().unreadable = Some(Errno::EFAULT);
    drive.readable(channel);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_fault(), Some(Fault::Read { channel, errno: Errno::EFAULT }));
    assert!(drive.next_event(channel).is_none());
    has(&mut drive, RawEvent::new(id, CmEvent::Established));
    assert!(drive.next_event(channel).is_none());
    let fault = Fault::Event { id, state: State::Idle, event: CmEvent::Established };
    assert_eq!((drive.next_fault(), drive.next_fault()), (Some(fault), None));
    // A closed channel is not read.
    drive.destroy(id, Time::NEVER).unwrap();
    drive.readable(channel);
    drive.close_channel(channel).unwrap();
    drive.device_mut().unreadable = Some(Errno::EFAULT);
    assert_ne!(drive.run(8), Next::Again);
    assert_eq!(drive.next_fault(), None);
    is_empty(&drive);
}

#[test]
fn a_channel_that_is_being_closed_is_not_read_and_wakes_no_wait() {
    let mut drive = driven();
    let id = drive.create_id(None, PortSpace::Tcp).unwrap();
    let home = drive.core().channel(id).unwrap();
    drive.readable(home);
    fails(&mut drive, "destroy_event_channel", Errno::EINTR);
    drive.destroy(id, Time::NEVER).unwrap();
    // The application did not request the close, so its failure is reported as a fault.
    let leak = Fault::Leak { call: "destroy_event_channel", target: Target::Channel(home), errno: Errno::EINTR };
    assert_eq!((drive.next_fault(), drive.next_fault()), (Some(leak), None));
    assert_eq!(drive.core().channels().count(), 0);
    assert_ne!(drive.run(8), Next::Again);
}

#[test]
fn the_newest_faults_are_kept() {
    let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
    take(&mut drive, id, CmEvent::Rejected);
    for _ in 0..64 {
        take(&mut drive, id, CmEvent::Established);
    }
    let faults: Vec<_> = std::iter::from_fn(|| drive.next_fault()).collect();
    assert_eq!(faults.len(), 64);
    assert!(faults.iter().all(|fault| matches!(fault, Fault::Event { event: CmEvent::Established, .. })));
}

#[test]
fn what_waited_for_an_ack_is_done_when_the_ack_returns() {
    let (mut drive, channel, id) = with_an_id(Acks::Explicit);
    report(&mut drive, id, CHANGE);
    let ack_token = drive.next_event(channel).unwrap().ack_token.unwrap();
    assert_eq!(drive.destroy(id, Time::NEVER).unwrap(), Progress::WhenAcked);
    assert!(calls(&mut drive).is_empty());
    drive.ack(ack_token).unwrap();
    assert_eq!(calls(&mut drive), ["destroy_id"]);
    assert!(drive.next_event(channel).is_some());

    // An ack token of another driver is refused.
    let (mut other, channel, id) = with_an_id(Acks::Explicit);
    report(&mut other, id, CHANGE);
    let ack_token = other.next_event(channel).unwrap().ack_token.unwrap();
    let refused = drive.ack(ack_token).unwrap_err();
    assert_eq!(Error::from(refused), Error::Refused(Refused::NothingOwed { owner: id }));
}

#[test]
fn a_request_returns_its_own_end_and_leaves_no_call_behind() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 1).unwrap();
    calls(&mut drive);
    let child = requested(&mut drive, listener);
    assert!(calls(&mut drive).is_empty(), "its id stays where it is");
    // The undelivered request is destroyed after its listener; its destruction fails.
    fails(&mut drive, "destroy_id", Errno::EINTR);
    drive.device_mut().spared = 1;
    assert_eq!(drive.destroy(listener, Time::NEVER).unwrap(), Progress::Done);
    assert_eq!(calls(&mut drive), ["destroy_id", "destroy_id", "destroy_event_channel"]);
    let leak = Fault::Leak { call: "destroy_id", target: Target::Id(child), errno: Errno::EINTR };
    assert_eq!(drive.next_fault(), Some(leak));
    assert_eq!((drive.core().state(child), drive.core().state(listener)), (None, None));
    drive.close_channel(channel).unwrap();
    is_empty(&drive);
}

/// For loops without descriptors: events that no poller has reported.
#[test]
fn all_channels_are_read_once_when_all_are_readable() {
    let (mut drive, first, id) = with_an_id(Acks::OnDelivery);
    let closed = drive.open_channel(Acks::OnDelivery).unwrap();
    let (second, other) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let listener = drive.create_id(Some(first), PortSpace::Tcp).unwrap();
    drive.listen(listener, 1).unwrap();
    drive.close_channel(closed).unwrap();
    let private = drive.core().device_channel(listener).unwrap();
    // A listen makes its channel readable.
    assert_ne!(drive.run(8), Next::Again);
    let reads = [(first, id), (second, other), (private, listener)];
    for (channel, id) in reads {
        drive.device_mut().events.push_back((channel, RawEvent::new(id, CHANGE)));
    }
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(drive.device().events.len(), 3);
    drive.readable_all();
    assert_eq!(drive.run(8), Next::Deliver);
    // The one of the listener is read first, and waits.
    let delivered = [first, first, second].map(|channel| drive.next_event(channel));
    assert_eq!(delivered.map(|event| event.unwrap().id), [listener, id, other]);
    drive.core().check();
}
