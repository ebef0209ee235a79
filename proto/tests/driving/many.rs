//! What a step costs does not grow with channels and events that it is not about.

use std::time::{Duration, Instant};

use cmid_proto::{
    Acks, Begun, ChannelKey, CmEvent, Core, Drive, Flow, IdKey, Limits, PortSpace, RawEvent, Request, Time,
};

use crate::device::Script;

/// The shortest time of several: that of a quiet moment.
fn shortest(measured: impl FnMut() -> Duration) -> Duration {
    std::iter::repeat_with(measured).take(9).min().unwrap()
}

#[test]
fn a_read_costs_the_same_if_many_other_channels_are_to_be_read() {
    let reads = |channels: usize| {
        shortest(|| {
            let mut drive = Drive::new(Script::new(), Limits::LARGE);
            let all: Vec<_> = (0..channels).map(|_| drive.open_channel(Acks::OnDelivery).unwrap()).collect();
            drive.readable_all();
            let begun = Instant::now();
            assert!(all.iter().rev().take(500).all(|&channel| drive.next_event(channel).is_none()));
            begun.elapsed()
        })
    };
    let (few, many) = (reads(500), reads(16_000));
    assert!(many < 20 * few, "{few:?} with few, {many:?} with many");
}

fn make(mut begun: Begun<'_, '_>) {
    while let Flow::Next(next) = begun.end(Ok(())) {
        begun = next;
    }
}

/// A core with ids on one channel, each with this number of undelivered events, which came in turn.
fn undelivered(ids: usize, events: usize) -> (Core, ChannelKey, Vec<IdKey>) {
    let mut core = Core::new(Limits { ids: 1 << 17, events: 1 << 17, ..Limits::LARGE });
    let (channel, begun) = core.open_channel(Acks::OnDelivery).unwrap();
    make(begun);
    let mut create = || {
        let (id, begun) = core.create_id(Some(channel), PortSpace::Tcp).unwrap();
        make(begun);
        id
    };
    let ids: Vec<_> = (0..ids).map(|_| create()).collect();
    for id in ids.repeat(events) {
        core.handle_event(channel, RawEvent::new(id, CmEvent::AddrChange)).unwrap();
    }
    (core, channel, ids)
}

#[test]
fn the_destruction_of_an_id_with_many_events_looks_at_each_once() {
    let destroys = |events| {
        shortest(|| {
            let (mut core, channel, ids) = undelivered(2, events);
            let begun = Instant::now();
            make(core.begin(Time::ZERO, ids[0], &Request::Destroy, Time::NEVER).unwrap());
            let took = begun.elapsed();
            core.check();
            assert!((0..events).all(|_| core.poll_event(channel).is_some_and(|event| event.id == ids[1])));
            assert_eq!(core.poll_event(channel), None);
            took
        })
    };
    let (few, many) = (destroys(250), destroys(8_000));
    // 32 times as many.
    assert!(many < 200 * few, "{few:?} with few, {many:?} with many");
}
