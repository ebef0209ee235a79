//! Reads that fail: the channel is read again, and after many failures not any more.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use cmid_epoll::{Config, Epoll};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, Device, DeviceLayer, Errno, Fault, IdKey, Limits, Outcome, Pollable, PortSpace,
    READ_FAILURES_MAX, RawEvent, Time,
};
use cmid_sim::{Clock, Fabric, SimDevice};

/// Longer than anything here takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(200);

/// A device of which so many reads fail.
struct Fragile {
    device: SimDevice,
    failures: u32,
}

impl DeviceLayer for Fragile {
    type Inner = SimDevice;
    type Handle = <SimDevice as Device>::Handle;

    fn inner(&self) -> &SimDevice {
        &self.device
    }
    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }
    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<'_>>, Errno> {
        match self.failures.checked_sub(1) {
            Some(left) => {
                self.failures = left;
                Err(Errno::EIO)
            }
            None => self.device.fetch(on, child),
        }
    }
    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        self.device.release(id, channel)
    }
    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
    }
}

impl Pollable for Fragile {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }
    fn sibling(&self) -> Self {
        Fragile { device: self.device.sibling(), failures: 0 }
    }
}

/// A driver, and an id whose ADDR_RESOLVED waits behind so many reads that fail.
fn resolving(failures: u32) -> (Epoll<Fragile>, ChannelKey, IdKey) {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    let device = fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]).device();
    let config = Config { limits: Limits::SINGLE, ..Config::default() };
    let mut driver = Epoll::new(Fragile { device, failures }, config).unwrap();
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse().unwrap(), Time::NEVER).unwrap();
    (driver, channel, id)
}

#[test]
fn an_event_behind_reads_that_failed_needs_no_other_wake_up() {
    let (mut driver, channel, id) = resolving(3);
    let begun = Instant::now();
    let event = loop {
        if let Some(event) = driver.drive().next_event(channel) {
            break event;
        }
        assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
        driver.wait(Some(SOON)).unwrap();
    };
    assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
    for _ in 0..3 {
        assert_eq!(driver.drive().next_fault(), Some(Fault::Read { channel, errno: Errno::EIO }));
    }
}

#[test]
fn a_channel_that_fails_for_good_keeps_nobody_awake() {
    let (mut driver, channel, id) = resolving(u32::MAX);
    let (mut returns, begun) = (0, Instant::now());
    while !driver.drive().core().has_failed(channel) {
        driver.wait(Some(SOON)).unwrap();
        returns += 1;
        assert!(begun.elapsed() < SOON && returns <= u32::from(READ_FAILURES_MAX) + 2, "{returns} returns");
    }
    // Its request ends, and it can be destroyed.
    driver.wait(Some(A_WHILE)).unwrap();
    assert_eq!(driver.drive().next_event(channel).unwrap().id, id);
    let begun = Instant::now();
    driver.wait(Some(A_WHILE)).unwrap();
    assert!(begun.elapsed() >= A_WHILE);
    driver.drive().destroy(id, Time::NEVER).unwrap();
    driver.drive().close_channel(channel).unwrap();
}
