//! The driver in the application's poll: the events that end the poll, and the use of tokens.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use cmid_mio::{Config, Mio};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, Error, Event, EventKind, IdKey, Limits, Next, PortSpace, Refused, RequestKind, Time,
};
use cmid_sim::{Clock, Fabric, Host, SimDevice};
use mio::{Events, Poll, Token, Waker};

/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// A token of the user, outside the driver's range.
const OWN: Token = Token(200);

fn host() -> Host {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()])
}

/// A program: a poll and the driver in it.
struct Program {
    poll: Poll,
    events: Events,
    driver: Mio<SimDevice>,
    /// Events of the poll that are not the driver's.
    foreign: Vec<Token>,
}

impl Program {
    fn new(host: &Host, limits: Limits, tokens: usize) -> Self {
        let poll = Poll::new().unwrap();
        let config = Config { limits, tokens: 100..100 + tokens };
        let driver = Mio::new(host.device(), poll.registry(), config).unwrap();
        Program { poll, events: Events::with_capacity(8), driver, foreign: Vec::new() }
    }

    fn id(&mut self) -> (ChannelKey, IdKey) {
        let channel = self.driver.drive().open_channel(Acks::OnDelivery).unwrap();
        (channel, self.driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap())
    }

    fn resolve(&mut self, id: IdKey) {
        self.driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse().unwrap(), Time::NEVER).unwrap();
    }

    /// Polls once. Returns whether any source became ready.
    fn polls(&mut self, at_most: Duration) -> bool {
        let timeout = self.driver.timeout(Some(at_most));
        self.poll.poll(&mut self.events, timeout).unwrap();
        for event in &self.events {
            if !self.driver.handle(event) {
                self.foreign.push(event.token());
            }
        }
        let _look = self.driver.turn();
        !self.events.is_empty()
    }

    fn awaits(&mut self, on: ChannelKey) -> Event {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.driver.drive().next_event(on) {
                return event;
            }
            assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
            self.polls(SOON);
        }
    }
}

#[test]
fn a_poll_lasts_until_the_deadline_of_the_application() {
    let mut program = Program::new(&host(), Limits::SINGLE, 4);
    assert_eq!(program.driver.timeout_until(Time::NEVER), None);
    assert_eq!(program.driver.timeout_until(Time::ZERO), Some(Duration::ZERO));
    let deadline = program.driver.drive().within(SOON);
    assert!(program.driver.timeout_until(deadline).is_some_and(|span| span <= SOON && span > SOON / 2));
}

/// Of a longer one, mio before 1.2.1 takes the lower 32 bits.
#[test]
fn a_timeout_is_one_of_epoll_wait() {
    let mut program = Program::new(&host(), Limits::SINGLE, 4);
    assert_eq!(program.driver.timeout(None), None);
    let (_, id) = program.id();
    let deadline = program.driver.drive().within(Duration::from_secs(365 * 24 * 3600));
    program.driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse().unwrap(), deadline).unwrap();
    for at_most in [None, Some(Duration::MAX)] {
        let timeout = program.driver.timeout(at_most).unwrap();
        assert!(i32::try_from(timeout.as_millis()).is_ok_and(|millis| millis > 0), "{timeout:?}");
    }
}

#[test]
fn what_was_left_in_the_kernel_is_read_without_another_edge() {
    let mut program = Program::new(&host(), Limits { events: 1, ids: 8, ..Limits::SINGLE }, 4);
    let (channel, first) = program.id();
    let ids = [(); 4].map(|()| program.driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap());
    let ids: Vec<_> = [first].into_iter().chain(ids).collect();
    for &id in &ids {
        program.resolve(id);
    }
    // All events are readable at the first edge. There is no second edge.
    std::thread::sleep(Duration::from_millis(100));
    let mut record: Vec<_> = ids.iter().map(|_| program.awaits(channel).id).collect();
    record.sort_unstable();
    assert_eq!(record, ids);
    // The channel may have more events until a read finds none.
    assert_eq!(program.driver.timeout(None), Some(Duration::ZERO));
    assert_eq!(program.driver.drive().next_event(channel), None);
    assert_eq!(program.driver.timeout(None), None);
}

/// The poll reports no second edge for a resumed channel, so it does not sleep, and the next turn says to take events.
#[test]
fn what_is_in_the_kernel_is_there_after_a_resume() {
    let mut program = Program::new(&host(), Limits::SINGLE, 4);
    let (channel, id) = program.id();
    program.driver.drive().pause_channel(channel).unwrap();
    program.resolve(id);
    let begun = Instant::now();
    // The event is in the kernel: the poll ends because of it, and it is not read.
    while !program.polls(SOON) {
        assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
    }
    program.driver.drive().resume_channel(channel).unwrap();
    assert_eq!(program.driver.timeout(Some(SOON)), Some(Duration::ZERO));
    assert_eq!(program.driver.turn(), Next::Deliver);
    assert_eq!(program.driver.drive().next_event(channel).unwrap().kind, EventKind::Cm(CmEvent::AddrResolved));
    // The channel may have more events until a read finds none.
    assert_eq!(program.driver.turn(), Next::Deliver);
    assert_eq!(program.driver.drive().next_event(channel), None);
    assert!(matches!(program.driver.turn(), Next::Wait(_)));
}

#[test]
fn a_sleep_never_ends_just_before_the_deadline() {
    let host = host();
    let mut program = Program::new(&host, Limits::SINGLE, 4);
    let (channel, id) = program.id();
    let nobody = "10.0.0.77:1".parse().unwrap();
    let deadline = program.driver.drive().within(Duration::from_micros(700_300));
    program.driver.drive().resolve_addr(id, None, nobody, deadline).unwrap();
    let timeout = program.driver.timeout(None).unwrap();
    assert_eq!(timeout.subsec_nanos() % 1_000_000, 0);
    assert!(timeout >= deadline.since(program.driver.drive().now()));
    assert!(timeout < Duration::from_micros(701_300));
    assert!(program.driver.timeout(Some(Duration::ZERO)) == Some(Duration::ZERO));
    // The kernel's timeout, which is a little earlier than the deadline; or the deadline, if this machine is slow.
    let event = program.awaits(channel);
    assert!(matches!(
        event.kind,
        EventKind::Cm(CmEvent::AddrError) | EventKind::DeadlinePassed(RequestKind::ResolveAddr)
    ));
}

#[test]
fn there_are_no_more_channels_than_tokens_and_tokens_are_used_again() {
    let mut program = Program::new(&host(), Limits::default(), 2);
    let (first, on_first) = program.id();
    let (_, listener) = program.id();
    let full = program.driver.drive().open_channel(Acks::OnDelivery);
    assert!(matches!(full, Err(Error::Refused(Refused::Full("channels")))), "{full:?}");
    // A listener needs a channel of its own.
    program.driver.drive().bind(listener, "10.0.0.2:7471".parse().unwrap()).unwrap();
    let refused = program.driver.drive().listen(listener, 1).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    program.driver.drive().destroy(on_first, Time::NEVER).unwrap();
    program.driver.drive().close_channel(first).unwrap();
    program.driver.drive().listen(listener, 1).unwrap();
    program.driver.drive().destroy(listener, Time::NEVER).unwrap();
    let (again, id) = program.id();
    program.resolve(id);
    assert_eq!(program.awaits(again).cm(), Some(CmEvent::AddrResolved));
}

#[test]
fn a_token_of_a_channel_that_was_closed_since_the_poll_is_still_the_drivers() {
    let mut program = Program::new(&host(), Limits::SINGLE, 4);
    let (channel, id) = program.id();
    program.resolve(id);
    program.poll.poll(&mut program.events, Some(SOON)).unwrap();
    program.driver.drive().destroy(id, Time::NEVER).unwrap();
    program.driver.drive().close_channel(channel).unwrap();
    assert!(!program.events.is_empty());
    assert!(program.events.iter().all(|event| program.driver.handle(event)));
    assert_eq!(program.driver.timeout(None), None);

    let waker = Waker::new(program.poll.registry(), OWN).unwrap();
    waker.wake().unwrap();
    assert!(program.polls(SOON));
    assert_eq!(program.foreign, [OWN]);
}

#[test]
fn a_range_of_tokens_may_be_endless_or_empty() {
    for (tokens, opens) in [(1..usize::MAX, true), (7..7, false)] {
        let poll = Poll::new().unwrap();
        let mut driver =
            Mio::new(host().device(), poll.registry(), Config { limits: Limits::default(), tokens }).unwrap();
        assert_eq!(driver.drive().open_channel(Acks::OnDelivery).is_ok(), opens);
    }
}
