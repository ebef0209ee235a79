//! Failed reads: they are retried without a wake-up, a limited number of times.

use cmid_proto::{Acks, CmEvent, Errno, Fault, Next, PortSpace, READ_FAILURES_MAX, RawEvent, Time};

use crate::device::{channel_and_id, driven, has, is_empty};

#[test]
fn an_event_behind_a_read_that_failed_is_delivered_without_another_wake_up() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    drive.device_mut().unreadable = Some(Errno::EIO);
    // The driver must not sleep, because no new edge follows. The fault is deliverable.
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_fault(), Some(Fault::Read { channel, errno: Errno::EIO }));
    assert_eq!(drive.next_action(), Next::Again);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    assert_eq!(drive.run(8), Next::Wait(None));
}

#[test]
fn a_failed_read_is_not_tried_again_in_the_same_turn_and_the_other_channels_are_read() {
    let mut drive = driven();
    let (bad, _) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    let (good, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.device_mut().broken = Some((bad, Errno::EIO));
    drive.readable(bad);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    let before = drive.device().reads;
    assert_eq!(drive.run(256), Next::Again);
    assert_eq!(drive.device().reads - before, 2);
    assert_eq!(drive.next_event(good).unwrap().id, id);
    // A failed read counts against the budget.
    let before = drive.device().reads;
    assert_eq!(drive.run(1), Next::Again);
    assert_eq!(drive.device().reads - before, 1);
    // A read that finds nothing does not.
    drive.device_mut().broken = None;
    assert_ne!(drive.run(1), Next::Again);
    assert_eq!(drive.device().reads - before, 3);
}

#[test]
fn a_channel_that_fails_for_good_is_given_up_and_the_driver_sleeps() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.resolve_addr(id, None, crate::device::addr(2), Time::NEVER).unwrap();
    drive.device_mut().broken = Some((channel, Errno::EBADF));
    drive.readable(channel);
    let (mut turns, before) = (0, drive.device().reads);
    while drive.run(8) != Next::Wait(None) {
        turns += 1;
        assert!(turns < 100, "it spins");
    }
    assert_eq!(drive.device().reads - before, usize::from(READ_FAILURES_MAX));
    let faults: Vec<_> = std::iter::from_fn(|| drive.next_fault()).collect();
    let (last, reads) = faults.split_last().unwrap();
    assert_eq!(*last, Fault::Channel { channel, errno: Errno::EBADF });
    assert_eq!(reads.len(), usize::from(READ_FAILURES_MAX));
    assert_eq!(drive.next_event(channel).unwrap().id, id, "its request has ended");
    // The poller may still report the channel as readable.
    drive.readable(channel);
    let _ = drive.run(8);
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(drive.device().reads - before, usize::from(READ_FAILURES_MAX));
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    is_empty(&drive);
}

#[test]
fn a_failed_channel_is_tried_again_when_it_is_resumed() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    drive.device_mut().broken = Some((channel, Errno::EIO));
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    while drive.run(8) != Next::Wait(None) {}
    drive.device_mut().broken = None;
    drive.resume_channel(channel).unwrap();
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
}
