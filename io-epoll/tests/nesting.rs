//! The driver's one descriptor in another loop: readable when there is something to do, and only then.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;
use std::time::Duration;

use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, ChannelKey, CmEvent, EventKind, IdKey, PortSpace, Rest, Time, Verb};
use cmid_sim::{Clock, Fabric, SimDevice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

fn driver(config: Config) -> Epoll<SimDevice> {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    Epoll::new(fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]).device(), config).unwrap()
}

fn readable(driver: &Epoll<SimDevice>, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut fds = [PollFd::new(driver, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

fn id(driver: &mut Epoll<SimDevice>) -> (ChannelKey, IdKey) {
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    (channel, driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap())
}

/// Asks for an address that nobody has: the kernel answers after seven eighths of the span.
fn look_for_nobody(driver: &mut Epoll<SimDevice>, id: IdKey, deadline: Time) {
    driver.drive().resolve_addr(id, None, "10.0.0.77:1".parse().unwrap(), deadline).unwrap();
}

#[test]
fn an_idle_driver_wakes_nobody() {
    let mut driver = driver(Config::default());
    let _ = id(&mut driver);
    assert_eq!(driver.turn().unwrap(), Rest::Until(None));
    assert!(!readable(&driver, Duration::from_millis(100)));
}

#[test]
fn an_event_makes_it_readable_once() {
    let mut driver = driver(Config::default());
    let (channel, id) = id(&mut driver);
    driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    assert!(readable(&driver, Duration::from_secs(5)));
    while driver.drive().core().news() == 0 {
        let _ = driver.turn().unwrap();
    }
    assert_eq!(driver.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
    assert!(matches!(driver.turn().unwrap(), Rest::Until(_)));
    assert!(!readable(&driver, Duration::from_millis(100)));
}

#[test]
fn a_deadline_makes_it_readable() {
    let mut driver = driver(Config::default());
    let (channel, id) = id(&mut driver);
    // The listener never answers, so only the core's own deadline can end the connect.
    let listener = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    let there = "10.0.0.2:7471".parse().unwrap();
    driver.drive().bind(listener, there).unwrap();
    driver.drive().listen(listener, 1).unwrap();
    driver.drive().resolve_addr(id, None, there, Time::NEVER).unwrap();
    let mut kinds = Vec::new();
    while !kinds.contains(&EventKind::DeadlinePassed(Verb::Connect)) {
        // A turn that says "look" or "more" has something to show already; only then is there nothing to wait for.
        if let Rest::Until(_) = driver.turn().unwrap() {
            assert!(readable(&driver, Duration::from_secs(5)), "after {kinds:?}");
        }
        while let Some(event) = driver.drive().next_event(channel) {
            kinds.push(event.kind);
            match event.cm() {
                Some(CmEvent::AddrResolved) => driver.drive().resolve_route(id, Time::NEVER).unwrap(),
                Some(CmEvent::RouteResolved) => {
                    let param = cmid_proto::ConnParam { qp_num: 9, ..Default::default() };
                    let deadline = driver.drive().within(Duration::from_millis(50));
                    driver.drive().connect(id, param, &[], deadline).unwrap();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_wait_ends_in_time_and_a_busy_poll_finds_events_too() {
    let mut idle = driver(Config::default());
    idle.wait(Some(Duration::from_millis(20))).unwrap();
    let mut busy = driver(Config { busy_poll: Duration::from_millis(500), ..Config::default() });
    let (channel, id) = id(&mut busy);
    let deadline = busy.drive().within(Duration::from_millis(1600));
    look_for_nobody(&mut busy, id, deadline);
    while busy.drive().core().news() == 0 {
        busy.wait(Some(Duration::from_secs(5))).unwrap();
    }
    assert_eq!(busy.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrError));
    assert!(busy.as_fd().try_clone_to_owned().is_ok());
}
