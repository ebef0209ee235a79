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
