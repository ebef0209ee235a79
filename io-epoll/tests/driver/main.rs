//! The driver on simulated hosts in real time.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod clock;
mod completions;
mod nesting;
mod one_by_one;
mod waking;

use std::os::fd::AsFd;
use std::time::Duration;

use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, ChannelKey, IdKey, Pollable, PortSpace, Time};
use cmid_sim::{Clock, Fabric, SimDevice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(100);
const PEER: &str = "10.0.0.2:7471";

fn device() -> SimDevice {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]).device()
}

fn driver() -> Epoll<SimDevice> {
    Epoll::new(device(), Config::default()).unwrap()
}

fn channel<D: Pollable>(driver: &mut Epoll<D>) -> ChannelKey {
    driver.drive().open_channel(Acks::OnDelivery).unwrap()
}

/// Begins to resolve an address on a new id.
fn resolve<D: Pollable>(driver: &mut Epoll<D>, on: ChannelKey, dst: &str, deadline: Time) -> IdKey {
    let id = driver.drive().create_id(Some(on), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, dst.parse().unwrap(), deadline).unwrap();
    id
}

fn listen(driver: &mut Epoll<SimDevice>, on: ChannelKey) {
    let listener = driver.drive().create_id(Some(on), PortSpace::Tcp).unwrap();
    driver.drive().bind(listener, PEER.parse().unwrap()).unwrap();
    driver.drive().listen(listener, 1).unwrap();
}

fn readable(driver: &impl AsFd, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    poll(&mut [PollFd::new(driver, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}
