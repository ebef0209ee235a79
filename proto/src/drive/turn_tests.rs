//! Compares the short path of a turn with the long one.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use super::{Drive, Next, StepRecord};
use crate::call::{Call, Outcome};
use crate::cm_event::CmEvent;
use crate::device::Device;
use crate::errno::Errno;
use crate::event::{Ece, RawEvent};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::request::{Acks, PortSpace};
use crate::time::Time;

type Fetched = Result<Option<RawEvent<&'static [u8]>>, Errno>;

/// A device with given results of its reads, which counts the steps that it observes.
#[derive(Debug, Default)]
struct Script<const OBSERVES: bool = false> {
    next: VecDeque<Fetched>,
    read: usize,
    observed: usize,
}

impl<const OBSERVES: bool> Device for Script<OBSERVES> {
    type Handle = ();

    const LEVEL_TRIGGERED: bool = true;
    const OBSERVES: bool = OBSERVES;

    fn observe(&mut self, _: &StepRecord<'_>) {
        self.observed += 1;
    }

    fn fetch(&mut self, _: ChannelKey, _: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.read += 1;
        self.next.pop_front().unwrap_or(Ok(None))
    }

    fn call(&mut self, _: &Call, _: &[u8]) -> Outcome {
        Ok(())
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::ENOENT)
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::ENOENT)
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Err(Errno::ENOENT)
    }

    fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn adopt(&mut self, _: IdKey, _: ChannelKey, (): ()) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }
}

/// Prepares a drive before the turn.
type Before = fn(&mut Drive<Script>, ChannelKey, ChannelKey, IdKey);

const BEFORE: [Before; 9] = [
    |_, _, _, _| {},
    |drive, on, _, _| drive.readable(on),
    |drive, on, other, _| [on, other].into_iter().for_each(|channel| drive.readable(channel)),
    |drive, on, _, _| {
        drive.readable(on);
        drive.pause_channel(on).unwrap();
    },
    |drive, on, _, id| {
        drive.core.handle_event(on, RawEvent::new(id, CmEvent::AddrChange)).unwrap();
        drive.readable(on);
    },
    |drive, on, other, _| {
        drive.readable(on);
        // A call is to be made.
        drive.core.close_channel(other).unwrap();
    },
    |drive, on, _, id| {
        drive.resolve_addr(id, None, SocketAddr::from(([10, 0, 0, 2], 7)), Time(5)).unwrap();
        drive.readable(on);
        drive.set_now(Time(6));
    },
    |drive, on, other, _| {
        // The other channel was full, and has room again.
        let full = drive.create_id(Some(other), PortSpace::Tcp).unwrap();
        drive.core.handle_event(other, RawEvent::new(full, CmEvent::AddrChange)).unwrap();
        drive.core.wait_for_room(other);
        assert!(drive.next_event(other).is_some());
        drive.readable(on);
    },
    |drive, on, other, _| {
        // The other channel has the only undelivered event.
        let id = drive.create_id(Some(other), PortSpace::Tcp).unwrap();
        drive.core.handle_event(other, RawEvent::new(id, CmEvent::AddrChange)).unwrap();
        drive.readable(on);
    },
];

fn prepared(before: Before, fetched: impl Fn(IdKey) -> [Fetched; 2]) -> Drive<Script> {
    let mut drive = Drive::new(Script::default(), Limits { channel_events: 1, ..Limits::LARGE });
    let [on, other] = [(); 2].map(|()| drive.open_channel(Acks::Explicit).unwrap());
    let id = drive.create_id(Some(on), PortSpace::Tcp).unwrap();
    drive.device.next.extend(fetched(id));
    before(&mut drive, on, other, id);
    drive
}

const READS: [fn(IdKey) -> [Fetched; 2]; 6] = [
    |_| [Ok(None), Err(Errno::EIO)],
    |_| [Err(Errno::EIO), Ok(None)],
    |id| [Ok(Some(RawEvent::new(id, CmEvent::AddrChange))), Ok(Some(RawEvent::new(id, CmEvent::Unknown(77))))],
    |id| [Ok(Some(RawEvent::new(id, CmEvent::DeviceRemoval))), Err(Errno::EIO)],
    // Impossible events.
    |id| [Ok(Some(RawEvent::new(id, CmEvent::Established))), Ok(None)],
    |id| [Ok(Some(RawEvent::new(id, CmEvent::ConnectRequest))), Err(Errno::EIO)],
];

#[test]
fn a_turn_is_the_same_on_both_paths() {
    let mut read = 0;
    for (at, before) in BEFORE.into_iter().enumerate() {
        for (from, fetched) in READS.into_iter().enumerate() {
            for (budget, to_look) in [0, 1, 2, 9].into_iter().flat_map(|budget| [(budget, false), (budget, true)]) {
                let [mut short, mut long] = [(); 2].map(|()| prepared(before, fetched));
                for turn in 0..3 {
                    let name = alloc::format!("before {at}, read {from}, budget {budget}, {to_look}, turn {turn}");
                    let left = short.take_turn(budget, to_look) && short.core().has_work();
                    let left_long = long.take_any_turn(budget, to_look) && long.core().has_work();
                    assert_eq!(left, left_long, "{name}");
                    assert_eq!(short.core, long.core, "{name}");
                    assert_eq!(short.faults, long.faults, "{name}");
                    assert_eq!(short.device.next.len(), long.device.next.len(), "{name}");
                    assert_eq!(short.device.read, long.device.read, "{name}");
                    short.core.check();
                }
                read += short.device.read;
            }
        }
    }
    assert!(read > 200, "{read} reads");
}

#[test]
fn a_device_that_names_no_transport_has_none() {
    let mut drive = prepared(BEFORE[0], READS[0]);
    let id = drive.core.id_keys().next().unwrap();
    assert_eq!(drive.device.transport(id), None);
}

/// The raw event has the key of the next id and the listener's.
const REQUESTS: [fn(IdKey, IdKey) -> [Fetched; 2]; 4] = [
    |listener, child| {
        let request = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
        [Ok(Some(RawEvent { private_data: &[7; 56], ..request })), Ok(None)]
    },
    // Impossible: the event has no listener.
    |_, child| [Ok(Some(RawEvent::new(child, CmEvent::ConnectRequest))), Err(Errno::EIO)],
    |listener, _| [Ok(Some(RawEvent::new(listener, CmEvent::DeviceRemoval))), Ok(None)],
    |_, _| [Err(Errno::EIO), Ok(None)],
];

/// Returns a drive with a listener, and the channel of its requests.
fn prepared_listener(
    limits: Limits,
    before: Before,
    fetched: impl Fn(IdKey, IdKey) -> [Fetched; 2],
) -> (Drive<Script>, ChannelKey) {
    let mut drive = Drive::new(Script::<false>::default(), limits);
    let [on, other] = [(); 2].map(|()| drive.open_channel(Acks::Explicit).unwrap());
    let [listener, id] = [(); 2].map(|()| drive.create_id(Some(on), PortSpace::Tcp).unwrap());
    drive.listen(listener, 2).unwrap();
    let _left = drive.take_any_turn(9, false);
    let device_channel = drive.core.device_channel(listener).unwrap();
    before(&mut drive, device_channel, other, id);
    let child = drive.core.wants_event(device_channel).unwrap_or(id);
    drive.device.next.extend(fetched(listener, child));
    (drive, device_channel)
}

#[test]
fn a_turn_that_reads_a_listener_is_the_same_on_both_paths() {
    let mut read = 0;
    let narrow = Limits { channel_events: 1, ..Limits::LARGE };
    let cases = [Limits::LARGE, narrow].into_iter().flat_map(|limits| BEFORE.map(|before| (limits, before)));
    for (at, (limits, before)) in cases.enumerate() {
        for (from, fetched) in REQUESTS.into_iter().enumerate() {
            for (budget, to_look) in [0, 1, 2, 9].into_iter().flat_map(|budget| [(budget, false), (budget, true)]) {
                let [mut short, mut long] = [(); 2].map(|()| prepared_listener(limits, before, fetched).0);
                for turn in 0..3 {
                    let name = alloc::format!("before {at}, read {from}, budget {budget}, {to_look}, turn {turn}");
                    let left = short.take_turn(budget, to_look) && short.core().has_work();
                    let left_long = long.take_any_turn(budget, to_look) && long.core().has_work();
                    assert_eq!(left, left_long, "{name}");
                    assert_eq!(short.core, long.core, "{name}");
                    assert_eq!(short.faults, long.faults, "{name}");
                    assert_eq!(short.device.next.len(), long.device.next.len(), "{name}");
                    assert_eq!(short.device.read, long.device.read, "{name}");
                    short.core.check();
                    for channel in short.core.channel_keys() {
                        assert_eq!(
                            short.core.wants_event(channel),
                            long.core.wants_event(channel),
                            "{name}, {channel}"
                        );
                    }
                }
                read += short.device.read;
            }
        }
    }
    assert!(read > 100, "{read} reads");
}

/// Runs two equal drives three times: one with the report of a channel, the other after it was marked as readable.
/// Returns the number of reads.
fn compare_reported(name: &str, budget: usize, prepare: impl Fn() -> (Drive<Script>, ChannelKey)) -> usize {
    let [(mut reported, on), (mut readable, _)] = [(); 2].map(|()| prepare());
    for turn in 0..3 {
        let name = alloc::format!("{name}, budget {budget}, turn {turn}");
        let next = reported.run_reported(on, budget);
        readable.readable(on);
        assert_eq!(next, readable.run(budget), "{name}");
        assert_eq!(reported.core, readable.core, "{name}");
        assert_eq!(reported.activity_seen, readable.activity_seen, "{name}");
        assert_eq!(reported.faults, readable.faults, "{name}");
        assert_eq!(reported.device.next.len(), readable.device.next.len(), "{name}");
        assert_eq!(reported.device.read, readable.device.read, "{name}");
        reported.core.check();
    }
    reported.device.read
}

#[test]
fn a_reported_channel_is_read_as_one_that_is_readable() {
    let (mut read, mut requests) = (0, 0);
    for (at, before) in BEFORE.into_iter().enumerate() {
        for budget in [0, 1, 2, 9] {
            for (from, fetched) in READS.into_iter().enumerate() {
                read += compare_reported(&alloc::format!("before {at}, read {from}"), budget, || {
                    let drive = prepared(before, fetched);
                    let on = drive.core.channel_at(0).unwrap();
                    (drive, on)
                });
            }
            for (from, fetched) in REQUESTS.into_iter().enumerate() {
                for limits in [Limits::LARGE, Limits { channel_events: 1, ..Limits::LARGE }] {
                    let name = alloc::format!("before {at}, request {from}, limits {}", limits.channel_events);
                    requests += compare_reported(&name, budget, || prepared_listener(limits, before, fetched));
                }
            }
        }
    }
    assert!(read > 100 && requests > 100, "{read} and {requests} reads");
}

#[test]
fn the_read_of_a_reported_channel_is_observed() {
    let mut drive = Drive::new(Script::<true>::default(), Limits::LARGE);
    let on = drive.open_channel(Acks::Explicit).unwrap();
    let id = drive.create_id(Some(on), PortSpace::Tcp).unwrap();
    while drive.run(1) == Next::Deliver {}
    let before = drive.device.observed;
    drive.device.next = VecDeque::from([Ok(Some(RawEvent::new(id, CmEvent::AddrChange)))]);
    assert_eq!(drive.run_reported(on, 9), Next::Deliver);
    // The steps: `Readable`, `WantsEvent`, `Event` and `Yield`.
    assert!(drive.device.observed >= before + 4, "{} steps", drive.device.observed - before);
}

#[test]
fn the_read_of_a_reported_listener_is_observed() {
    let mut drive = Drive::new(Script::<true>::default(), Limits::LARGE);
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let listener = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.listen(listener, 2).unwrap();
    while drive.run(1) == Next::Deliver {}
    let on = drive.core.device_channel(listener).unwrap();
    let child = drive.core.wants_event(on).unwrap();
    let before = drive.device.observed;
    let request = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    drive.device.next = VecDeque::from([Ok(Some(request))]);
    assert_eq!(drive.run_reported(on, 9), Next::Deliver);
    // The steps: `Readable`, `WantsEvent`, `Event` and `Yield`.
    assert!(drive.device.observed >= before + 4, "{} steps", drive.device.observed - before);
}

#[test]
fn the_request_of_a_synchronous_id_is_observed() {
    let mut drive = Drive::new(Script::<true>::default(), Limits::LARGE);
    let id = drive.create_id(None, PortSpace::Tcp).unwrap();
    let before = drive.device.observed;
    drive.bind(id, SocketAddr::from(([10, 0, 0, 2], 7))).unwrap();
    // The steps: `Submit`, `Call` and `Outcome`.
    assert!(drive.device.observed >= before + 3, "{} steps", drive.device.observed - before);
}
