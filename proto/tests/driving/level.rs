//! When a channel is read again with a level-triggered poller.

use std::cell::RefCell;

use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Errno, IdKey, Next, Poller, PortSpace, RawEvent, Time};

use crate::device::{LIMITS, Script, addr, delivers};

/// A poller that reports a channel for as long as it is readable.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    done: RefCell<Vec<(&'static str, ChannelKey)>>,
}

impl<D> Poller<D> for Levels {
    fn is_level_triggered(&self) -> bool {
        true
    }

    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}

    fn arm(&mut self, channel: ChannelKey, _: &D) {
        self.done.borrow_mut().push(("arm", channel));
    }

    fn disarm(&mut self, channel: ChannelKey, _: &D) {
        self.done.borrow_mut().push(("disarm", channel));
    }

    fn clock(&self) -> Option<Time> {
        Some(Time(7_000))
    }
}

type Level = Drive<Script, Levels>;

fn level() -> (Level, ChannelKey, IdKey) {
    let mut drive = Drive::with(Script::new(), Levels::default(), (), LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    (drive, channel, id)
}

/// Queues `events` events of an id without a report of its channel.
fn unread(drive: &mut Level, id: IdKey, events: usize) {
    let device_channel = drive.core().device_channel(id).unwrap();
    for _ in 0..events {
        drive.device_mut().events.push_back((device_channel, RawEvent::new(id, CmEvent::AddrChange)));
    }
}

/// The number of reads, and of events that are left at the device.
fn read(drive: &Level) -> (usize, usize) {
    (drive.device().reads, drive.device().events.len())
}

fn done(drive: &Level) -> Vec<(&'static str, ChannelKey)> {
    drive.poller().done.take()
}

#[test]
fn one_event_is_read_per_report() {
    let (mut drive, channel, id) = level();
    unread(&mut drive, id, 2);
    for (reads, left) in [(1, 1), (2, 0)] {
        drive.readable(channel);
        assert_eq!(drive.run(8), Next::Deliver);
        assert_eq!(read(&drive), (reads - 1, left + 1), "the application reads");
        assert_eq!(drive.next_event(channel).unwrap().id, id);
        assert_eq!((read(&drive), drive.has_work()), ((reads, left), false));
        assert!(drive.next_event(channel).is_none());
        assert_eq!(drive.run(8), Next::Wait(None));
        assert_eq!(read(&drive), (reads, left), "none finds nothing");
    }
    assert_eq!(done(&drive), []);
}

/// The channel of an id in synchronous mode is read by the turn.
#[test]
fn a_full_private_channel_is_not_reported_until_it_is_read_again() {
    let (mut drive, ..) = level();
    let id = drive.create_id(None, PortSpace::Tcp).unwrap();
    let home = drive.core().device_channel(id).unwrap();
    let full = LIMITS.events as usize;
    unread(&mut drive, id, full + 2);
    for reads in 1..=full {
        drive.readable(home);
        assert_ne!(drive.run(8), Next::Again);
        assert_eq!((drive.device().reads, drive.has_work()), (reads, false), "one event per report");
    }
    assert_eq!(done(&drive), []);
    for _ in 0..2 {
        drive.readable(home);
        assert_ne!(drive.run(8), Next::Again);
        assert_eq!((read(&drive), drive.has_work()), ((full, 2), false));
        drive.core().check();
    }
    assert_eq!(done(&drive), [("disarm", home)]);
    assert!(drive.next_event(home).is_some());
    assert_ne!(drive.run(8), Next::Again);
    assert_eq!((done(&drive), read(&drive)), (vec![("arm", home)], (full + 1, 1)));
}

/// The events of a listener fill the channel that delivers them.
#[test]
fn a_full_channel_is_not_reported_until_the_application_has_taken_what_is_in_front() {
    let (mut drive, channel, id) = level();
    let listener = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.listen(listener, 4).unwrap();
    let own = drive.core().device_channel(listener).unwrap();
    assert_eq!(drive.run(8), Next::Wait(None));
    done(&drive);
    let full = LIMITS.events as usize;
    unread(&mut drive, listener, full);
    for _ in 0..full {
        drive.readable(own);
        assert_eq!(drive.run(8), Next::Deliver);
    }
    assert!(drive.device().events.is_empty());
    unread(&mut drive, id, 2);
    let before = drive.device().reads;
    for _ in 0..2 {
        drive.readable(channel);
        assert_eq!(drive.run(8), Next::Deliver);
        assert!(!drive.has_work());
        drive.core().check();
    }
    assert_eq!((read(&drive), done(&drive)), ((before, 2), vec![("disarm", channel)]));
    for _ in 0..full {
        assert_eq!(drive.next_event(channel).unwrap().id, listener);
        assert_eq!(drive.run(8), Next::Deliver);
    }
    assert_eq!((read(&drive), done(&drive)), ((before, 2), vec![]));
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    assert_eq!((read(&drive), done(&drive)), ((before + 1, 1), vec![("arm", channel)]));
    assert_eq!(drive.run(8), Next::Wait(None));
}

#[test]
fn a_paused_channel_is_not_reported_until_it_is_resumed() {
    let (mut drive, channel, id) = level();
    drive.pause_channel(channel).unwrap();
    unread(&mut drive, id, 1);
    for _ in 0..2 {
        drive.readable(channel);
        assert_eq!(drive.run(8), Next::Wait(None));
        assert!(drive.next_event(channel).is_none());
    }
    assert_eq!((read(&drive), done(&drive)), ((0, 1), vec![("disarm", channel)]));
    drive.resume_channel(channel).unwrap();
    delivers(&mut drive, channel, id);
    assert_eq!(done(&drive), [("arm", channel)]);
    // An application that asks before the next turn does not read it either.
    drive.pause_channel(channel).unwrap();
    drive.readable(channel);
    assert!(drive.next_event(channel).is_none());
    assert_eq!((read(&drive), done(&drive)), ((1, 0), vec![("disarm", channel)]));
    assert_eq!(drive.run(8), Next::Wait(None));
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    // A closed channel is not armed again.
    assert_eq!(done(&drive), []);
}

#[test]
fn where_an_id_has_moved_the_poller_looks_again() {
    let (mut drive, _, id) = level();
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    drive.migrate(id, Some(other), Time::NEVER).unwrap();
    unread(&mut drive, id, 2);
    // The first is read without a report; the poller reports the second.
    delivers(&mut drive, other, id);
    assert_eq!(done(&drive), [("arm", other)]);
    assert_eq!((read(&drive), drive.has_work()), ((1, 1), false));
    assert_eq!(drive.run(8), Next::Wait(None));
    drive.readable(other);
    delivers(&mut drive, other, id);
    assert_eq!(done(&drive), [], "once");
}

#[test]
fn where_several_ids_have_moved_the_poller_looks_again_at_each_channel() {
    let (mut drive, channel, first) = level();
    let second = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let others = [first, second].map(|id| {
        let other = drive.open_channel(Acks::OnDelivery).unwrap();
        drive.migrate(id, Some(other), Time::NEVER).unwrap();
        unread(&mut drive, id, 2);
        other
    });
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(others.map(|other| drive.next_event(other).unwrap().id), [first, second]);
    assert_eq!((done(&drive), read(&drive)), (others.map(|other| ("arm", other)).to_vec(), (2, 2)));
    // A closed channel is not armed.
    drive.migrate(first, Some(channel), Time::NEVER).unwrap();
    drive.destroy(first, Time::NEVER).unwrap();
    drive.destroy(second, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(done(&drive), []);
}

/// Otherwise the poller would report it in each wait.
#[test]
fn a_channel_that_is_not_reported_stays_so_when_other_ids_move() {
    let (mut drive, channel, first) = level();
    let second = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let [to, other] = [(); 2].map(|()| drive.open_channel(Acks::OnDelivery).unwrap());
    drive.migrate(first, Some(to), Time::NEVER).unwrap();
    unread(&mut drive, first, 2);
    drive.pause_channel(to).unwrap();
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(done(&drive), [("disarm", to)]);
    drive.migrate(second, Some(other), Time::NEVER).unwrap();
    assert_eq!(done(&drive), []);
    drive.resume_channel(to).unwrap();
    delivers(&mut drive, to, first);
    assert_eq!(done(&drive), [("arm", to)]);
}

#[test]
fn a_run_that_has_used_up_its_budget_and_leaves_no_work_is_not_to_be_repeated() {
    let (mut drive, channel, listener) = level();
    let gone = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.destroy(gone, Time::NEVER).unwrap();
    drive.listen(listener, 4).unwrap();
    let own = drive.core().device_channel(listener).unwrap();
    assert_eq!(drive.run(8), Next::Wait(None));
    drive.device_mut().events.push_back((own, RawEvent::new(gone, CmEvent::AddrChange)));
    drive.readable(own);
    assert_eq!(drive.run(1), Next::Wait(None));
    assert!(drive.device().events.is_empty());
}

#[test]
fn an_event_that_is_not_delivered_leaves_no_work_behind() {
    let (mut drive, channel, id) = level();
    // This event comes too late.
    drive.resolve_addr(id, None, addr(2), Time(8_000)).unwrap();
    drive.set_now(Time(8_000));
    assert_eq!(drive.run(1), Next::Deliver);
    while drive.next_event(channel).is_some() {}
    drive.device_mut().events.push_back((channel, RawEvent::new(id, CmEvent::AddrResolved)));
    drive.readable(channel);
    assert_eq!(drive.run(1), Next::Deliver, "before the read it could be delivered");
    assert!(drive.next_event(channel).is_none());
    assert_eq!((read(&drive), drive.core().summary().counters.late), ((1, 0), 1));
    assert_eq!(drive.run(1), Next::Wait(None));
}

#[test]
fn the_close_of_a_channel_changes_nothing_for_others() {
    let (mut drive, channel, id) = level();
    let [first, second, to] = [(); 3].map(|()| drive.open_channel(Acks::OnDelivery).unwrap());
    drive.pause_channel(channel).unwrap();
    drive.readable(channel);
    assert_eq!(drive.run(8), Next::Wait(None));
    assert_eq!(done(&drive), [("disarm", channel)]);
    drive.close_channel(first).unwrap();
    drive.resume_channel(channel).unwrap();
    assert_eq!(drive.run(8), Next::Deliver);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(done(&drive), [("arm", channel)], "it is still known as disarmed");
    drive.migrate(id, Some(to), Time::NEVER).unwrap();
    drive.close_channel(second).unwrap();
    unread(&mut drive, id, 2);
    delivers(&mut drive, to, id);
    assert_eq!(done(&drive), [("arm", to)], "the id is still known as moved");
}

/// An accept migrates the id of a request to its channel; no event is pending then.
#[test]
fn where_an_id_has_moved_to_be_accepted_the_poller_need_not_look_again() {
    let (mut drive, channel, listener) = level();
    drive.listen(listener, 4).unwrap();
    let device_channel = drive.core().device_channel(listener).unwrap();
    assert_ne!(device_channel, channel);
    let _rest = drive.run(8);
    done(&drive);
    for _ in 0..2 {
        let child = drive.core().wants_event(device_channel).unwrap();
        let request = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
        drive.device_mut().events.push_back((device_channel, request));
        drive.readable(device_channel);
        delivers(&mut drive, channel, child);
        drive.accept(child, ConnParam { qp_num: 9, ..ConnParam::default() }, &[], Time::NEVER).unwrap();
        assert_eq!(drive.core().device_channel(child), Some(channel));
        assert!(!drive.has_work());
        unread(&mut drive, child, 2);
        for _ in 0..2 {
            drive.readable(channel);
            delivers(&mut drive, channel, child);
        }
        assert_eq!(drive.run(8), Next::Wait(None));
    }
    assert_eq!(done(&drive), []);
}

#[test]
fn a_deadline_is_counted_from_the_present_time() {
    let (drive, ..) = level();
    assert_eq!(drive.now(), Time::ZERO);
    assert_eq!(drive.within(std::time::Duration::from_nanos(5)), Time(7_005));
    assert_eq!(drive.now(), Time(7_000));
}

#[test]
fn after_a_wait_without_a_clock_the_present_time_is_that_of_the_device() {
    let (mut drive, ..) = level();
    assert_eq!(drive.now(), Time::ZERO);
    drive.note_wait();
    assert_eq!(drive.now(), Time(7_000));
    // A time that was set is not read again.
    drive.note_wait();
    drive.set_now(Time(9_000));
    assert_eq!(drive.now(), Time(9_000));
}

#[test]
fn after_a_wait_without_a_clock_a_deadline_that_has_passed_is_too_late() {
    let (mut drive, _, id) = level();
    drive.note_wait();
    let late = drive.resolve_addr(id, None, addr(2), Time(5_000)).unwrap_err();
    assert_eq!(late.errno(), Errno::ETIMEDOUT);
}

/// Like poll(2): the channels are passed anew on each call.
#[derive(Debug, Default)]
struct Anew;

impl<D> Poller<D> for Anew {
    fn is_level_triggered(&self) -> bool {
        true
    }

    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}
}

#[test]
fn a_poller_that_keeps_no_channels_has_nothing_to_arm_and_one_without_a_clock_has_the_time_that_was_set() {
    let mut drive = Drive::with(Script::new(), Anew, (), LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.set_now(Time(9));
    assert_eq!(drive.within(std::time::Duration::from_nanos(5)), Time(14));
    drive.pause_channel(channel).unwrap();
    drive.device_mut().events.push_back((channel, RawEvent::new(id, CmEvent::AddrChange)));
    drive.readable(channel);
    assert_eq!((drive.run(8), drive.device().events.len()), (Next::Wait(None), 1));
    drive.resume_channel(channel).unwrap();
    assert_eq!((drive.run(8), drive.device().events.len()), (Next::Deliver, 1));
    assert_eq!(drive.next_event(channel).unwrap().id, id);
    assert_eq!(drive.run(8), Next::Wait(None));
}
