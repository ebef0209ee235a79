//! A channel with many events is read again without an `epoll_wait`, and other channels are read as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use cmid_epoll::{Config, Epoll};
use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, PortSpace, RawEvent, Time,
};
use cmid_sim::{Clock, Fabric, SimDevice};

/// Counts the reads that find no event.
struct Counting {
    device: SimDevice,
    in_vain: Rc<Cell<usize>>,
}

impl DeviceLayer for Counting {
    type Inner = SimDevice;
    type Handle = <SimDevice as Device>::Handle;

    fn inner(&self) -> &SimDevice {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let fetched = self.device.fetch(on, child);
        if fetched == Ok(None) {
            self.in_vain.set(self.in_vain.get() + 1);
        }
        fetched
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)
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

const SOON: Duration = Duration::from_secs(20);

fn driver() -> (Epoll<Counting>, Rc<Cell<usize>>) {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    let host = fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]);
    let in_vain = Rc::new(Cell::new(0));
    let device = Counting { device: host.device(), in_vain: Rc::clone(&in_vain) };
    (Epoll::new(device, Config::default()).unwrap(), in_vain)
}

fn resolve(driver: &mut Epoll<Counting>, channel: ChannelKey) {
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
}

/// Waits once and returns the number of events.
fn taken(driver: &mut Epoll<Counting>, channel: ChannelKey) -> usize {
    let events = std::iter::from_fn(|| driver.drive().next_event(channel));
    events.inspect(|event| assert_eq!(event.cm(), Some(CmEvent::AddrResolved))).count()
}

#[test]
fn each_event_is_delivered_before_the_next_is_read_and_no_channel_is_kept_waiting() {
    const EVENTS: usize = 300;
    let (mut driver, in_vain) = driver();
    let [busy, other] = [(), ()].map(|()| driver.drive().open_channel(Acks::OnDelivery).unwrap());
    (0..EVENTS).for_each(|_| resolve(&mut driver, busy));
    std::thread::sleep(Duration::from_millis(100));
    let mut left = EVENTS;
    // The driver reads the busy channel without an `epoll_wait`.
    for _ in 0..100 {
        driver.wait(Some(SOON)).unwrap();
        assert_eq!(taken(&mut driver, busy), 1);
        left -= 1;
    }
    resolve(&mut driver, other);
    std::thread::sleep(Duration::from_millis(50));
    let mut before = 0;
    loop {
        driver.wait(Some(SOON)).unwrap();
        let busy = taken(&mut driver, busy);
        (left, before) = (left - busy, before + busy);
        if taken(&mut driver, other) == 1 {
            break;
        }
    }
    assert!(before <= 20, "{before} events of another channel came first");
    while left > 0 {
        driver.wait(Some(SOON)).unwrap();
        left -= taken(&mut driver, busy);
    }
    assert!(in_vain.get() <= 5, "{} reads found no event, though there was one each time", in_vain.get());
}

#[test]
fn where_events_come_one_by_one_few_reads_find_nothing() {
    let (mut driver, in_vain) = driver();
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    for _ in 0..64 {
        resolve(&mut driver, channel);
        // Waits for the event, so that a read finds it as soon as the epoll instance reports it.
        driver.wait(Some(SOON)).unwrap();
        while taken(&mut driver, channel) == 0 {
            driver.wait(Some(SOON)).unwrap();
        }
    }
    assert!(in_vain.get() <= 8, "{} reads", in_vain.get());
}
