//! What a wait of each driver promises: it takes what has come, lasts as long as it may, and nothing keeps it awake.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use cmid_harness::{Make, OnBlocking, OnEpoll, OnMio, OnTokio, sim_host};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, Limits, PortSpace, Time};
use cmid_sim::SimDevice;
use rustix::time::{ClockId, clock_gettime};

/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(100);
const EVENTS: usize = 50;
const PEER: &str = "10.0.0.2:7471";
/// No host has it, so a lookup of it ends at its deadline.
const NOBODY: &str = "10.0.0.77:1";

fn channels<S: Make<SimDevice>, const N: usize>(driver: &mut S) -> [ChannelKey; N] {
    [(); N].map(|()| driver.drive().open_channel(Acks::OnDelivery).unwrap())
}

fn id<S: Make<SimDevice>>(driver: &mut S, channel: ChannelKey) -> IdKey {
    driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap()
}

fn resolve<S: Make<SimDevice>>(driver: &mut S, channel: ChannelKey, dst: &str, deadline: Time) -> IdKey {
    let id = id(driver, channel);
    driver.drive().resolve_addr(id, None, dst.parse().unwrap(), deadline).unwrap();
    id
}

/// Makes events on a channel: some in the device, and as many that the core makes itself, at a deadline.
fn make_events<S: Make<SimDevice>>(driver: &mut S, channel: ChannelKey) {
    let deadline = driver.drive().within(Duration::from_millis(1));
    for _ in 0..EVENTS / 2 {
        resolve(driver, channel, NOBODY, deadline);
        resolve(driver, channel, PEER, Time::NEVER);
    }
    std::thread::sleep(A_WHILE);
}

/// The next event of a channel.
fn awaited<S: Make<SimDevice>>(driver: &mut S, on: ChannelKey) -> Event {
    let begun = Instant::now();
    loop {
        if let Some(event) = driver.drive().next_event(on) {
            return event;
        }
        assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
        driver.wait(Some(SOON)).unwrap();
    }
}

/// A wait ends at its limit, and has slept until then.
fn lasts<S: Make<SimDevice>>(driver: &mut S) {
    let processor = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (begun, used) = (Instant::now(), processor());
    driver.wait(Some(A_WHILE)).unwrap();
    assert!(begun.elapsed() >= A_WHILE);
    let used = processor() - used;
    assert!(used < A_WHILE / 10, "{used:?} of a processor");
}

macro_rules! on_each_driver {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() {
            let tests: [(&str, fn()); 4] = [
                ("mio", of::$name::<OnMio<_>>),
                ("epoll", of::$name::<OnEpoll<_>>),
                ("blocking", of::$name::<OnBlocking<_>>),
                ("tokio", of::$name::<OnTokio<_>>),
            ];
            for (driver, test) in tests {
                println!("{driver}");
                test();
            }
        }
    )+};
}

on_each_driver! {
    a_driver_without_events_waits_as_long_as_it_may
    a_loop_that_takes_one_event_per_wait_loses_nothing
    an_event_that_nobody_takes_delays_no_other_channel_and_no_deadline
    at_the_limit_on_ids_nobody_is_kept_awake_by_a_request
}

mod of {
    use super::*;

    pub(super) fn a_driver_without_events_waits_as_long_as_it_may<S: Make<SimDevice>>() {
        let mut driver = S::make(sim_host().device()).unwrap();
        let [channel] = channels(&mut driver);
        id(&mut driver, channel);
        lasts(&mut driver);
    }

    pub(super) fn a_loop_that_takes_one_event_per_wait_loses_nothing<S: Make<SimDevice>>() {
        let mut driver = S::make(sim_host().device()).unwrap();
        let [channel] = channels(&mut driver);
        make_events(&mut driver, channel);
        let (begun, mut taken) = (Instant::now(), 0);
        while taken < EVENTS {
            driver.wait(Some(SOON)).unwrap();
            taken += usize::from(driver.drive().next_event(channel).is_some());
            assert!(begun.elapsed() < SOON, "{taken} of {EVENTS}");
        }
        driver.wait(Some(A_WHILE)).unwrap();
        assert_eq!(driver.drive().next_event(channel), None);
    }

    pub(super) fn an_event_that_nobody_takes_delays_no_other_channel_and_no_deadline<S: Make<SimDevice>>() {
        let mut driver = S::make(sim_host().device()).unwrap();
        let [left, channel] = channels(&mut driver);
        make_events(&mut driver, left);
        driver.wait(Some(SOON)).unwrap();
        let (begun, mut kinds) = (Instant::now(), Vec::new());
        let deadline = driver.drive().within(A_WHILE);
        let [one, _] = [PEER, NOBODY].map(|dst| resolve(&mut driver, channel, dst, deadline));
        while kinds.len() < 2 {
            driver.wait(None).unwrap();
            kinds.extend(driver.drive().next_event(channel).map(|event| (event.id == one, event.cm())));
            assert!(begun.elapsed() < SOON, "{kinds:?}");
        }
        assert_eq!(kinds[0], (true, Some(CmEvent::AddrResolved)));
        assert!(begun.elapsed() >= A_WHILE / 2, "the other one ends with its time limit");
        assert!(driver.drive().next_event(left).is_some());
    }

    pub(super) fn at_the_limit_on_ids_nobody_is_kept_awake_by_a_request<S: Make<SimDevice>>() {
        let host = sim_host();
        let mut server = S::observed(host.device(), Limits { ids: 2, ..Limits::SINGLE }, ()).unwrap();
        let [channel] = channels(&mut server);
        let [listener, other] = [(); 2].map(|()| id(&mut server, channel));
        server.drive().bind(listener, PEER.parse().unwrap()).unwrap();
        server.drive().listen(listener, 8).unwrap();

        let mut client = S::make(host.device()).unwrap();
        let [to_client] = channels(&mut client);
        let id = resolve(&mut client, to_client, PEER, Time::NEVER);
        assert_eq!(awaited(&mut client, to_client).cm(), Some(CmEvent::AddrResolved));
        client.drive().resolve_route(id, Time::NEVER).unwrap();
        assert_eq!(awaited(&mut client, to_client).cm(), Some(CmEvent::RouteResolved));
        client.drive().connect(id, ConnParam { qp_num: 9, ..Default::default() }, &[], Time::NEVER).unwrap();
        std::thread::sleep(A_WHILE);
        // The request stays in the device. What a wait has found of it may end that wait, and no other one.
        server.wait(Some(A_WHILE)).unwrap();
        lasts(&mut server);
        assert_eq!(server.drive().next_event(channel), None);
        // An event of another channel is still delivered. Then there is room.
        server.drive().resolve_addr(other, None, PEER.parse().unwrap(), Time::NEVER).unwrap();
        assert_eq!(awaited(&mut server, channel).cm(), Some(CmEvent::AddrResolved));
        server.drive().destroy(other, Time::NEVER).unwrap();
        assert_eq!(awaited(&mut server, channel).cm(), Some(CmEvent::ConnectRequest));
    }
}
