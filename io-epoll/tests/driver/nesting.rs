//! The driver's one descriptor in another loop: readable exactly when a turn has work.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cmid_epoll::{Config, Epoll};
use cmid_proto::{ChannelKey, CmEvent, Event, EventKind, Next, RequestKind, Time};
use cmid_sim::SimDevice;
use rustix::event::epoll;
use rustix::time::Timespec;

use crate::{A_WHILE, PEER, SOON, channel, device, driver, listen, readable, resolve};

/// The next event of a channel.
fn awaited(driver: &mut Epoll<SimDevice>, on: ChannelKey) -> Event {
    let begun = Instant::now();
    loop {
        if let Some(event) = driver.drive().next_event(on) {
            return event;
        }
        assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
        driver.wait(Some(SOON)).unwrap();
    }
}

#[test]
fn an_event_makes_it_readable_once() {
    let mut driver = driver();
    let channel = channel(&mut driver);
    resolve(&mut driver, channel, PEER, Time::NEVER);
    assert!(readable(&driver, SOON));
    assert_eq!(driver.turn().unwrap(), Next::Deliver);
    assert_eq!(driver.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
    assert!(matches!(driver.turn().unwrap(), Next::Wait(_)));
    assert!(!readable(&driver, A_WHILE));
}

#[test]
fn a_deadline_makes_it_readable() {
    let mut driver = driver();
    let channel = channel(&mut driver);
    // The listener never replies, so only the core's deadline ends the connect.
    listen(&mut driver, channel);
    let id = resolve(&mut driver, channel, PEER, Time::NEVER);
    let mut kinds = Vec::new();
    while !kinds.contains(&EventKind::DeadlinePassed(RequestKind::Connect)) {
        // After `Deliver` or `Again` there are events already, so there is no wait.
        if let Next::Wait(_) = driver.turn().unwrap() {
            assert!(readable(&driver, SOON), "after {kinds:?}");
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
fn a_wait_lasts_as_long_as_it_may_and_a_busy_poll_finds_events_too() {
    let span = Duration::from_millis(20);
    let (mut idle, begun) = (driver(), Instant::now());
    idle.wait(Some(span)).unwrap();
    assert!(begun.elapsed() >= span);
    let config = Config { busy_poll: Duration::from_millis(500), ..Config::default() };
    let mut busy = Epoll::new(device(), config).unwrap();
    let channel = channel(&mut busy);
    resolve(&mut busy, channel, PEER, Time::NEVER);
    assert_eq!(awaited(&mut busy, channel).cm(), Some(CmEvent::AddrResolved));
    assert!(busy.as_fd().try_clone_to_owned().is_ok());
}

#[test]
fn a_wait_without_time_takes_what_is_in_the_kernel() {
    let mut driver = driver();
    let channel = channel(&mut driver);
    resolve(&mut driver, channel, PEER, Time::NEVER);
    assert!(readable(&driver, SOON));
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert_eq!(driver.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
}

#[test]
fn an_edge_triggered_outer_loop_hears_of_every_channel() {
    const CHANNELS: usize = 200;
    let mut driver = driver();
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&outer, &driver, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET).unwrap();
    let channels: Vec<_> = (0..CHANNELS).map(|_| channel(&mut driver)).collect();
    for &channel in &channels {
        resolve(&mut driver, channel, PEER, Time::NEVER);
    }
    // After this pause most of the events are readable.
    std::thread::sleep(A_WHILE);
    let mut record = 0;
    while record < CHANNELS {
        let mut reports = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let soon = Timespec { tv_sec: SOON.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(epoll::wait(&outer, &mut reports, Some(&soon)).unwrap(), 1, "{record} of {CHANNELS}");
        loop {
            let rest = driver.turn().unwrap();
            record += channels.iter().filter(|&&channel| driver.drive().next_event(channel).is_some()).count();
            if let Next::Wait(_) = rest {
                break;
            }
        }
    }
}
