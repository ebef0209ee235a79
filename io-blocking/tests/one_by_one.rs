//! A wait for one id is not ended by the events of another.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_blocking::{Blocking, Canceller, Endpoint, Error};
use cmid_proto::{Acks, ChannelKey, CmEvent, IdKey, Limits, PortSpace, Time};
use cmid_sim::SimDevice;
use rustix::time::{ClockId, clock_gettime};

use common::{SOON, host, server};

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
