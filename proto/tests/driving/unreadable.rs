//! Failed reads: they are retried without a wake-up, a limited number of times.

use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, Event, Fault, Limits, Next, PortSpace, RawEvent, State, Time};

use crate::device::{Driven, addr, channel_and_id, delivers, driven, has, is_empty, with_an_id};

/// Makes turns until the driver may block. The application asks for an event of the channel in each.
fn sleeps(drive: &mut Driven, channel: ChannelKey) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..100 {
        if drive.run(8) == Next::Wait(None) {
            return events;
        }
        events.extend(drive.next_event(channel));
    }
    panic!("it spins");
}

#[test]
fn an_event_behind_a_read_that_failed_is_delivered_without_another_wake_up() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    drive.device_mut().unreadable = Some(Errno::EIO);
    assert_eq!(drive.run(8), Next::Deliver);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.next_fault(), Some(Fault::Read { channel, errno: Errno::EIO }));
    // The driver must not sleep, because no new edge follows.
    assert_eq!(drive.next_action(), Next::Deliver);
    delivers(&mut drive, channel, id);
    assert!(sleeps(&mut drive, channel).is_empty());
}

/// The channel of a listener is read by the turn.
#[test]
fn an_event_behind_a_failed_read_of_a_private_channel_is_delivered_without_another_wake_up() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 1).unwrap();
    let own = has(&mut drive, RawEvent::new(listener, CmEvent::AddrChange));
    drive.device_mut().unreadable = Some(Errno::EIO);
    // The fault is deliverable.
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_fault(), Some(Fault::Read { channel: own, errno: Errno::EIO }));
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.next_action(), Next::Again);
    delivers(&mut drive, channel, listener);
    assert_eq!(drive.run(8), Next::Wait(None));
}

#[test]
fn a_failed_read_is_not_tried_again_for_the_same_question_and_the_other_channels_are_read() {
    let (mut drive, bad, _) = with_an_id(Acks::OnDelivery);
    let (good, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.device_mut().broken = Some((bad, Errno::EIO));
    drive.readable(bad);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!((drive.run(256), drive.device().reads), (Next::Deliver, 0));
    assert!(drive.next_event(bad).is_none());
    assert_eq!(drive.device().reads, 1);
    assert_eq!(drive.next_event(good).unwrap().id, id);
    assert_eq!(drive.device().reads, 2);
}

#[test]
fn a_failed_read_of_a_private_channel_is_not_tried_again_in_the_same_turn_and_the_others_are_read() {
    let mut drive = driven();
    let [(bad, _), (good, id)] = [(); 2].map(|()| {
        let id = drive.create_id(None, PortSpace::Tcp).unwrap();
        (drive.core().device_channel(id).unwrap(), id)
    });
    drive.device_mut().broken = Some((bad, Errno::EIO));
    drive.readable(bad);
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrResolved));
    // A read of the good channel has found nothing before the bad one is the next again.
    assert_eq!(drive.run(256), Next::Deliver);
    assert_eq!(drive.device().reads, 2);
    assert_eq!(drive.core().state(id), Some(State::AddrResolved));
    // A failed read counts against the budget.
    drive.readable(good);
    assert_eq!(drive.run(1), Next::Deliver);
    assert_eq!(drive.device().reads, 3);
    assert_eq!(drive.next_action(), Next::Again);
    // A read that finds nothing does not.
    drive.device_mut().broken = None;
    assert_eq!(drive.run(1), Next::Wait(None));
    assert_eq!(drive.device().reads, 5);
}

#[test]
fn a_channel_that_fails_for_good_is_given_up_and_the_driver_sleeps() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    drive.device_mut().broken = Some((channel, Errno::EBADF));
    drive.readable(channel);
    let ended = sleeps(&mut drive, channel);
    assert_eq!(ended.iter().map(|event| event.id).collect::<Vec<_>>(), [id], "its request has ended");
    assert_eq!(drive.device().reads, usize::from(Limits::READ_FAILURES_MAX));
    let faults: Vec<_> = std::iter::from_fn(|| drive.next_fault()).collect();
    let (last, reads) = faults.split_last().unwrap();
    assert_eq!(*last, Fault::Channel { channel, errno: Errno::EBADF });
    assert_eq!(reads.len(), usize::from(Limits::READ_FAILURES_MAX));
    // The poller may still report the channel as readable, and the application may ask.
    for asks in [false, true] {
        drive.readable(channel);
        assert!(!asks || drive.next_event(channel).is_none());
        assert_eq!(drive.run(8), Next::Wait(None));
        assert!(drive.next_event(channel).is_none());
    }
    assert_eq!(drive.device().reads, usize::from(Limits::READ_FAILURES_MAX));
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    is_empty(&drive);
}

#[test]
fn a_failed_channel_is_resumed_with_its_fault_and_the_others_stay() {
    let (mut drive, channel, _) = with_an_id(Acks::OnDelivery);
    assert_eq!(drive.resume_failed(), Ok(()));
    drive.device_mut().broken = Some((channel, Errno::EBADF));
    drive.readable(channel);
    assert!(sleeps(&mut drive, channel).is_empty(), "nothing waits for an event");
    let is_failed = |drive: &Driven| drive.core().channel_info(channel).is_some_and(|it| it.has_failed);
    assert!(is_failed(&drive));
    let fault = Fault::Channel { channel, errno: Errno::EBADF };
    assert_eq!(drive.resume_failed(), Err(fault.into()));
    assert_eq!((is_failed(&drive), drive.resume_failed()), (false, Ok(())));
    let left = std::iter::from_fn(|| drive.next_fault()).count();
    assert_eq!(left, usize::from(Limits::READ_FAILURES_MAX), "those of the reads");
}

#[test]
fn a_private_channel_that_fails_for_good_is_given_up_and_the_driver_sleeps() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 1).unwrap();
    let own = drive.core().device_channel(listener).unwrap();
    drive.device_mut().broken = Some((own, Errno::EBADF));
    assert!(sleeps(&mut drive, channel).is_empty());
    assert_eq!(drive.device().reads, usize::from(Limits::READ_FAILURES_MAX));
    assert!(drive.core().channel_info(own).is_some_and(|it| it.has_failed));
    drive.readable(own);
    assert_eq!((drive.run(8), drive.device().reads), (Next::Wait(None), usize::from(Limits::READ_FAILURES_MAX)));
}

#[test]
fn a_failed_channel_is_tried_again_when_it_is_resumed() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.device_mut().broken = Some((channel, Errno::EIO));
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert!(sleeps(&mut drive, channel).is_empty());
    assert!(drive.core().channel_info(channel).is_some_and(|it| it.has_failed));
    drive.device_mut().broken = None;
    drive.resume_channel(channel).unwrap();
    delivers(&mut drive, channel, id);
}
