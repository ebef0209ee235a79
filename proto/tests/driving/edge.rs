//! When a channel is read again with an edge-triggered poller, and which channels a turn reads.

use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Errno, Next, Poller, PortSpace, RawEvent, State, Time};

use crate::device::{LIMITS, Script, addr, channel_and_id, delivers, has, with_an_id};

/// Like epoll with EPOLLET: a channel is reported again only when an event arrives.
#[derive(Debug, Default)]
struct Edges;

impl<D> Poller<D> for Edges {
    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}

    fn arm(&mut self, channel: ChannelKey, _: &D) {
        panic!("{channel} is armed");
    }
}

#[test]
fn an_edge_triggered_poller_is_not_armed_where_ids_move_to() {
    let mut drive = Drive::with(Script::new(), Edges, (), LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    for _ in 0..2 {
        let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        let other = drive.open_channel(Acks::OnDelivery).unwrap();
        drive.migrate(id, Some(other), Time::NEVER).unwrap();
        drive.device_mut().events.push_back((other, RawEvent::new(id, CmEvent::AddrChange)));
        assert_eq!(drive.run(8), Next::Deliver, "the channel is read without a report");
        assert_eq!(drive.next_event(other).unwrap().id, id);
        assert_eq!(drive.run(8), Next::Deliver, "no read has found nothing yet");
        assert!(drive.next_event(other).is_none());
        assert_eq!(drive.run(8), Next::Wait(None));
    }
}

#[test]
fn a_channel_that_is_reported_once_is_read_once_per_event_until_a_read_finds_nothing() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    drive.device_mut().events.extend([(channel, RawEvent::new(id, CmEvent::AddrChange)); 3]);
    drive.readable(channel);
    for reads in 1..=3 {
        assert_eq!(drive.run(8), Next::Deliver);
        assert_eq!(drive.device().reads, reads - 1, "the application reads");
        assert_eq!(drive.next_event(channel).unwrap().id, id);
        assert_eq!((drive.device().reads, drive.next_action()), (reads, Next::Deliver));
    }
    assert!(drive.has_work());
    assert!(drive.next_event(channel).is_none());
    assert_eq!((drive.device().reads, drive.has_work(), drive.run(8)), (4, false, Next::Wait(None)));
    // It is not read again without a report.
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.device().reads, 4);
}

/// An application takes as much as it likes from each of its channels.
#[test]
fn a_channel_is_read_for_those_who_ask_for_its_events_only() {
    let (mut drive, busy, id) = with_an_id(Acks::OnDelivery);
    let (other, patient) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Tcp);
    for id in [id, id, patient] {
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    }
    delivers(&mut drive, other, patient);
    assert!(drive.next_event(other).is_none());
    assert_eq!((drive.device().reads, drive.device().events.len()), (2, 2));
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(std::iter::from_fn(|| drive.next_event(busy)).count(), 2);
    assert_eq!(drive.run(8), Next::Wait(None));
}

/// A turn that has an event for the application reads each private channel once.
#[test]
fn an_event_is_delivered_before_its_private_channel_is_read_again() {
    let (mut drive, channel, busy) = with_an_id(Acks::OnDelivery);
    let patient = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    for id in [busy, patient] {
        drive.listen(id, 1).unwrap();
    }
    assert_eq!(drive.run(8), Next::Wait(None));
    for id in [busy, busy, patient] {
        has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    }
    let before = drive.device().reads;
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!((drive.device().reads - before, drive.device().events.len()), (2, 1), "each channel once");
    assert_eq!([(); 2].map(|()| drive.next_event(channel).unwrap().id), [busy, patient]);
    assert!(drive.has_work());
    delivers(&mut drive, channel, busy);
    assert_eq!(drive.run(8), Next::Wait(None));
}

/// What is ready for the application does not keep a private channel from being read.
#[test]
fn a_private_channel_is_read_in_each_turn() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    let own = drive.create_id(None, PortSpace::Tcp).unwrap();
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    drive.resolve_addr(own, None, addr(2), Time::NEVER).unwrap();
    has(&mut drive, RawEvent::new(own, CmEvent::AddrResolved));
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.core().state(own), Some(State::AddrResolved));
    assert_eq!(drive.device().events.len(), 1);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
}

/// Events that are not delivered to the application end neither a turn nor the search for the next event.
#[test]
fn what_is_nothing_to_look_at_is_read_on() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    let gone = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.destroy(gone, Time::NEVER).unwrap();
    let stray = RawEvent::new(gone, CmEvent::AddrChange);
    drive.device_mut().events.extend([(channel, stray); 3]);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    delivers(&mut drive, channel, id);
    assert_eq!((drive.device().events.len(), drive.core().summary().counters.stray), (0, 3));
    assert!(drive.next_event(channel).is_none());

    drive.listen(id, 1).unwrap();
    let own = drive.core().device_channel(id).unwrap();
    drive.device_mut().events.extend([(own, stray); 3]);
    has(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!((drive.device().events.len(), drive.core().summary().counters.stray), (0, 6));
    assert_eq!(drive.next_event(channel).unwrap().id, id);
}
