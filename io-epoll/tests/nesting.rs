//! The driver's one descriptor in another loop: readable exactly when a turn has work.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, ChannelKey, CmEvent, Event, EventKind, IdKey, Limits, Next, PortSpace, RequestKind, Time};
use cmid_sim::{Clock, Fabric, SimDevice};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn driver(config: Config) -> Epoll<SimDevice> {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    Epoll::new(fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]).device(), config).unwrap()
}

fn readable(driver: &Epoll<SimDevice>, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    poll(&mut [PollFd::new(driver, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

fn id(driver: &mut Epoll<SimDevice>) -> (ChannelKey, IdKey) {
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    (channel, driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap())
}

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
fn an_idle_driver_wakes_nobody() {
    let mut driver = driver(Config::default());
    let _ = id(&mut driver);
    assert_eq!(driver.turn().unwrap(), Next::Wait(None));
    assert!(!readable(&driver, Duration::from_millis(100)));
}

#[test]
fn an_event_makes_it_readable_once() {
    let mut driver = driver(Config::default());
    let (channel, id) = id(&mut driver);
    driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    assert!(readable(&driver, SOON));
    assert_eq!(driver.turn().unwrap(), Next::Deliver);
    assert_eq!(driver.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
    assert!(matches!(driver.turn().unwrap(), Next::Wait(_)));
    assert!(!readable(&driver, Duration::from_millis(100)));
}

#[test]
fn a_deadline_makes_it_readable() {
    let mut driver = driver(Config::default());
    let (channel, id) = id(&mut driver);
    // The listener never replies, so only the core's deadline ends the connect.
    let listener = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    let there = "10.0.0.2:7471".parse().unwrap();
    driver.drive().bind(listener, there).unwrap();
    driver.drive().listen(listener, 1).unwrap();
    driver.drive().resolve_addr(id, None, there, Time::NEVER).unwrap();
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
    let (mut idle, begun) = (driver(Config::default()), Instant::now());
    idle.wait(Some(span)).unwrap();
    assert!(begun.elapsed() >= span);
    let mut busy = driver(Config { busy_poll: Duration::from_millis(500), ..Config::default() });
    let (channel, id) = id(&mut busy);
    busy.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    assert_eq!(awaited(&mut busy, channel).cm(), Some(CmEvent::AddrResolved));
    assert!(busy.as_fd().try_clone_to_owned().is_ok());
}

#[test]
fn a_wait_without_time_takes_what_is_in_the_kernel() {
    let mut driver = driver(Config::default());
    let (channel, id) = id(&mut driver);
    driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    assert!(readable(&driver, SOON));
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert_eq!(driver.drive().next_event(channel).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
}

#[test]
fn an_event_that_moved_in_the_kernel_is_read_by_the_next_turn() {
    let mut driver = driver(Config::default());
    let (old, id) = id(&mut driver);
    let new = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    // The event is unread on the old channel. The new channel does not become readable.
    assert!(readable(&driver, SOON));
    driver.drive().migrate(id, Some(new), Time::NEVER).unwrap();
    assert_eq!(driver.turn().unwrap(), Next::Deliver);
    assert_eq!(driver.drive().next_event(new).and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
    assert_eq!(driver.drive().next_event(old), None);
    while driver.turn().unwrap() != Next::Wait(None) {}
    assert!(!readable(&driver, Duration::from_millis(100)));
}

#[test]
fn an_edge_triggered_outer_loop_hears_of_every_channel() {
    const CHANNELS: usize = 200;
    let mut driver = driver(Config::default());
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&outer, &driver, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET).unwrap();
    let ids: Vec<_> = (0..CHANNELS).map(|_| id(&mut driver)).collect();
    for &(_, id) in &ids {
        driver.drive().resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), Time::NEVER).unwrap();
    }
    // After this pause most of the events are readable.
    std::thread::sleep(Duration::from_millis(100));
    let mut record = 0;
    while record < CHANNELS {
        let mut reports = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let soon = Timespec { tv_sec: SOON.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(epoll::wait(&outer, &mut reports, Some(&soon)).unwrap(), 1, "{record} of {CHANNELS}");
        loop {
            let rest = driver.turn().unwrap();
            record += ids.iter().filter(|&&(channel, _)| driver.drive().next_event(channel).is_some()).count();
            if let Next::Wait(_) = rest {
                break;
            }
        }
    }
}

#[test]
fn at_the_limit_on_ids_nobody_is_kept_awake_by_a_request() {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    let host = fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]);
    let there = "10.0.0.2:7471".parse().unwrap();
    let limits = Limits { ids: 2, ..Limits::SINGLE };
    let mut server = Epoll::new(host.device(), Config { limits, ..Config::default() }).unwrap();
    let (channel, listener) = id(&mut server);
    server.drive().bind(listener, there).unwrap();
    server.drive().listen(listener, 8).unwrap();
    while server.turn().unwrap() != Next::Wait(None) {}
    let other = server.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();

    let mut client = Epoll::new(host.device(), Config::default()).unwrap();
    let (to_client, id) = id(&mut client);
    client.drive().resolve_addr(id, None, there, Time::NEVER).unwrap();
    assert_eq!(awaited(&mut client, to_client).cm(), Some(CmEvent::AddrResolved));
    client.drive().resolve_route(id, Time::NEVER).unwrap();
    assert_eq!(awaited(&mut client, to_client).cm(), Some(CmEvent::RouteResolved));
    let param = cmid_proto::ConnParam { qp_num: 9, ..Default::default() };
    client.drive().connect(id, param, &[], Time::NEVER).unwrap();

    // The channel stays readable. The driver disarms it when the core takes no event of it.
    assert!(readable(&server, SOON));
    while server.turn().unwrap() != Next::Wait(None) {}
    assert!(!readable(&server, Duration::from_millis(100)));
    let (begun, span) = (Instant::now(), Duration::from_millis(50));
    server.wait(Some(span)).unwrap();
    assert!(begun.elapsed() >= span);
    // An event of another channel is still delivered. Then there is room.
    assert_eq!(server.drive().next_event(channel), None);
    server.drive().resolve_addr(other, None, there, Time::NEVER).unwrap();
    assert_eq!(awaited(&mut server, channel).cm(), Some(CmEvent::AddrResolved));
    server.drive().destroy(other, Time::NEVER).unwrap();
    assert_eq!(awaited(&mut server, channel).cm(), Some(CmEvent::ConnectRequest));
}
