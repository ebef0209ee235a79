//! A loop may take one event per wait and leave the others. A wait for one id is not ended by the events of another.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_blocking::{Blocking, Canceller, Endpoint, Error};
use cmid_proto::{Acks, ChannelKey, CmEvent, IdKey, Limits, PortSpace, Time};
use cmid_sim::SimDevice;
use rustix::time::{ClockId, clock_gettime};

use common::{A_WHILE, SOON, host, server};

const EVENTS: usize = 50;
/// No host has it, so a lookup of it ends at its deadline.
const NOBODY: &str = "10.0.0.77:1";

fn driver() -> (Blocking<SimDevice>, ChannelKey) {
    let mut driver = Blocking::new(host().device(), Limits::default(), Canceller::new().unwrap());
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    (driver, channel)
}

fn resolve(driver: &mut Blocking<SimDevice>, channel: ChannelKey, dst: SocketAddr, deadline: Time) -> IdKey {
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, dst, deadline).unwrap();
    id
}

/// Half of the events are in the device; the core makes the others, at a deadline.
#[test]
fn a_loop_that_takes_one_event_per_wait_loses_nothing() {
    let (mut driver, channel) = driver();
    let deadline = driver.drive().within(Duration::from_millis(1));
    for _ in 0..EVENTS / 2 {
        resolve(&mut driver, channel, server(), Time::NEVER);
        resolve(&mut driver, channel, NOBODY.parse().unwrap(), deadline);
    }
    std::thread::sleep(A_WHILE);
    let (begun, mut taken) = (Instant::now(), 0);
    while taken < EVENTS {
        driver.wait(Some(SOON)).unwrap();
        taken += usize::from(driver.drive().next_event(channel).is_some());
        assert!(begun.elapsed() < SOON, "{taken} of {EVENTS}");
    }
    driver.wait(Some(A_WHILE)).unwrap();
    assert_eq!(driver.drive().next_event(channel), None);
}

#[test]
fn an_event_that_nobody_takes_delays_no_other_channel() {
    let (mut driver, left) = driver();
    let other = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    resolve(&mut driver, left, server(), Time::NEVER);
    driver.wait(Some(SOON)).unwrap();
    let id = resolve(&mut driver, other, server(), Time::NEVER);
    let begun = Instant::now();
    let event = loop {
        driver.wait(Some(SOON)).unwrap();
        if let Some(event) = driver.drive().next_event(other) {
            break event;
        }
        assert!(begun.elapsed() < SOON);
    };
    assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
    assert_eq!(driver.drive().next_event(left).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
}

/// A wait for a synchronous request sleeps, although an event on another channel can be taken.
#[test]
fn a_wait_for_one_id_sleeps_while_another_one_has_an_event() {
    let processor = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (mut driver, left) = driver();
    resolve(&mut driver, left, server(), Time::NEVER);
    driver.wait(Some(SOON)).unwrap();
    let span = Duration::from_millis(400);
    let endpoint = Endpoint {
        port_space: PortSpace::Tcp,
        src: None,
        dst: Some(NOBODY.parse().unwrap()),
        settings: &[],
        timeout: span,
    };
    let (begun, used) = (Instant::now(), processor());
    let error = driver.create_endpoint(&endpoint).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. } | Error::Ended { .. }), "{error}");
    assert!(begun.elapsed() >= span / 2);
    assert!(processor() - used < span / 4, "it has not slept");
    assert_eq!(driver.drive().next_event(left).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
}
