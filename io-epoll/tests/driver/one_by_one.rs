//! Each event is read when it is taken. A loop may take one event at a time and leave the others.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use cmid_epoll::{Config, Epoll};
use cmid_proto::{ChannelKey, Device, DeviceLayer, Errno, IdKey, Next, Pollable, RawEvent, Time};
use cmid_sim::SimDevice;

use crate::{A_WHILE, PEER, SOON, channel, device, readable, resolve};

/// Counts the reads that find no event.
struct Counting {
    device: SimDevice,
    in_vain: Rc<Cell<usize>>,
}

impl DeviceLayer for Counting {
    cmid_proto::layer_on!(device: SimDevice);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let fetched = self.device.fetch(on, child);
        if fetched == Ok(None) {
            self.in_vain.set(self.in_vain.get() + 1);
        }
        fetched
    }
}

impl Pollable for Counting {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Counting { device: self.device.sibling(), in_vain: Rc::clone(&self.in_vain) }
    }
}

const EVENTS: usize = 50;
/// No host has it, so a lookup of it ends at its deadline.
const NOBODY: &str = "10.0.0.77:1";

fn driver() -> (Epoll<Counting>, Rc<Cell<usize>>) {
    let in_vain = Rc::new(Cell::new(0));
    let device = Counting { device: device(), in_vain: Rc::clone(&in_vain) };
    (Epoll::new(device, Config::default()).unwrap(), in_vain)
}

/// Makes events on a channel: some in the device, and as many that the core has made itself, of deadlines.
fn make_events(driver: &mut Epoll<Counting>, channel: ChannelKey) {
    let deadline = driver.drive().within(Duration::from_millis(1));
    for _ in 0..EVENTS / 2 {
        resolve(driver, channel, NOBODY, deadline);
        resolve(driver, channel, PEER, Time::NEVER);
    }
    std::thread::sleep(A_WHILE);
}

fn takes_one(driver: &mut Epoll<Counting>, channel: ChannelKey) -> bool {
    driver.drive().next_event(channel).is_some()
}

#[test]
fn a_loop_that_takes_one_event_per_turn_loses_nothing() {
    let (mut driver, _) = driver();
    let channel = channel(&mut driver);
    make_events(&mut driver, channel);
    let mut taken = 0;
    while taken < EVENTS {
        assert!(readable(&driver, SOON), "{taken} of {EVENTS}");
        let _next = driver.turn().unwrap();
        taken += usize::from(takes_one(&mut driver, channel));
    }
    // The device reports the ends of the lookups that had ended at their deadline; such events are not delivered.
    while !matches!(driver.turn().unwrap(), Next::Wait(_)) || readable(&driver, A_WHILE) {
        assert_eq!(driver.drive().next_event(channel), None);
    }
}

#[test]
fn an_event_is_read_when_it_is_taken_and_no_channel_is_kept_waiting() {
    let (mut driver, in_vain) = driver();
    let [busy, other] = [(); 2].map(|()| channel(&mut driver));
    for _ in 0..EVENTS {
        resolve(&mut driver, busy, PEER, Time::NEVER);
    }
    std::thread::sleep(A_WHILE);
    for _ in 0..EVENTS / 2 {
        driver.wait(Some(SOON)).unwrap();
        assert!(takes_one(&mut driver, busy));
        assert!(!takes_one(&mut driver, busy), "one read for each report");
    }
    resolve(&mut driver, other, PEER, Time::NEVER);
    std::thread::sleep(A_WHILE);
    driver.wait(Some(SOON)).unwrap();
    assert!(takes_one(&mut driver, busy) && takes_one(&mut driver, other));
    assert_eq!(in_vain.get(), 0);
}

#[test]
fn where_events_come_one_by_one_no_read_finds_nothing() {
    let (mut driver, in_vain) = driver();
    let channel = channel(&mut driver);
    for _ in 0..64 {
        resolve(&mut driver, channel, PEER, Time::NEVER);
        driver.wait(Some(SOON)).unwrap();
        while driver.drive().next_event(channel).is_some() {}
    }
    assert_eq!(in_vain.get(), 0);
}
