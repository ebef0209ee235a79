//! A core and the steps of a dialogue; the test acts as the application, the device and the peer.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, ConnParam, Core, Errno, Error, Event, EventKind, Failure, Fault, Flow,
    GroupKey, IdKey, Limits, Outcome, PortSpace, Progress, RawEvent, RefuseReason, Refused, RejectReason, Request,
    State, Time,
};

use crate::start::Start;
use crate::taken;

pub(crate) const OK: Outcome = Ok(());

/// How long the deadlines of most tests are off.
pub(crate) const SOON: Duration = Duration::from_millis(2);

/// A core; most steps check its invariants. The file `states` leads ids to each state, and a dialogue to its end: when this is
/// dropped, all is destroyed and closed, and nothing may be left.
#[derive(Clone)]
pub(crate) struct CoreFixture {
    pub(crate) core: Core,
    pub(crate) now: Time,
    limits: Limits,
    /// A request whose calls are to be made.
    open: Option<Open>,
    pub(crate) stops: bool,
}

/// A request, and the outcomes of its first calls. A call borrows the core, and a dialogue looks at the core between the
/// calls: so each call is made on a copy, which replaces the core when the request has ended.
#[derive(Clone)]
struct Open {
    start: Start,
    outcomes: Vec<Outcome>,
}

/// The next call with its private data, or the result.
type NextCall<'o> = Result<(Call, &'o [u8]), Result<Progress, Error>>;

/// The end of a request that has made a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) result: Result<(), Failure>,
}

pub(crate) fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7471))
}

/// The address of a multicast group.
pub(crate) fn group_addr(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, last], 7471))
}

pub(crate) const BIND: Request<'static> =
    Request::Bind { addr: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 7471) };
pub(crate) const RESOLVE: Request<'static> = Request::ResolveAddr {
    src: None,
    dst: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 7471),
};
pub(crate) const LISTEN: Request<'static> = Request::Listen { backlog: 8 };
pub(crate) const REJECT: Request<'static> = Request::Reject { reason: RejectReason::Consumer, private_data: b"no" };

/// Parameters for an id without a QP.
pub(crate) fn param() -> ConnParam {
    ConnParam { qp_num: 7, ..ConnParam::default() }
}

pub(crate) fn connect() -> Request<'static> {
    Request::Connect { param: param(), private_data: b"hello" }
}

pub(crate) fn accept() -> Request<'static> {
    Request::Accept { param: param(), private_data: b"welcome" }
}

pub(crate) fn to(channel: ChannelKey) -> Request<'static> {
    Request::Migrate { to: Some(channel) }
}

pub(crate) const TO_SYNC: Request<'static> = Request::Migrate { to: None };

pub(crate) fn cm(kind: CmEvent) -> EventKind {
    EventKind::Cm(kind)
}

/// A raw event without data.
pub(crate) fn raw(id: IdKey, kind: CmEvent, status: i32) -> RawEvent<&'static [u8]> {
    RawEvent { status, ..RawEvent::new(id, kind) }
}

/// A raw event of a membership.
pub(crate) fn of(group: GroupKey, id: IdKey, kind: CmEvent, status: i32) -> RawEvent<&'static [u8]> {
    RawEvent { group: Some(group), ..raw(id, kind, status) }
}

/// An event that was taken and acked.
pub(crate) struct Seen(Event);

impl std::ops::Deref for Seen {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.0
    }
}

impl CoreFixture {
    pub(crate) fn new() -> Self {
        Self::with(Limits { ids: 32, channels: 32, events: 64, groups: 8, ..Limits::SINGLE })
    }

    pub(crate) fn with(limits: Limits) -> Self {
        CoreFixture { core: Core::new(limits), now: Time(1_000), limits, open: None, stops: false }
    }

    /// A new core with limits that reserve `ids` ids and `events` events.
    pub(crate) fn reserving(self, ids: u32, events: u32) -> Self {
        Self::with(Limits { reserved_ids: ids, reserved_events: events, ..self.limits })
    }

    /// A core with one channel.
    pub(crate) fn on(acks: Acks) -> (Self, ChannelKey) {
        let mut fixture = Self::new();
        let channel = fixture.channel(acks);
        (fixture, channel)
    }

    /// A core with two channels.
    pub(crate) fn on_two(acks: Acks) -> (Self, ChannelKey, ChannelKey) {
        let (mut fixture, here) = Self::on(acks);
        let there = fixture.channel(acks);
        (fixture, here, there)
    }

    pub(crate) fn channel(&mut self, acks: Acks) -> ChannelKey {
        let channel = self.opens(acks).unwrap();
        self.expect_call("create_event_channel", OK);
        channel
    }

    /// A new id; `None` makes it synchronous.
    pub(crate) fn id(&mut self, on: Option<ChannelKey>) -> IdKey {
        self.id_for(PortSpace::Tcp, on)
    }

    pub(crate) fn id_for(&mut self, space: PortSpace, on: Option<ChannelKey>) -> IdKey {
        let id = self.creates(space, on).unwrap();
        self.all_well();
        id
    }

    /// Begins the creation of an id, and returns its key.
    pub(crate) fn creates(&mut self, space: PortSpace, on: Option<ChannelKey>) -> Result<IdKey, Refused> {
        let id = self.core.create_id(on, space)?.0;
        self.start(Start::Create(on, space))?;
        Ok(id)
    }

    /// Begins the opening of a channel, and returns its key.
    pub(crate) fn opens(&mut self, acks: Acks) -> Result<ChannelKey, Refused> {
        let channel = self.core.open_channel(acks)?.0;
        self.start(Start::OpenChannel(acks))?;
        Ok(channel)
    }

    /// Begins a join, and returns the key of the membership.
    pub(crate) fn joins(
        &mut self,
        id: IdKey,
        addr: SocketAddr,
        send_only: bool,
        deadline: Time,
    ) -> Result<GroupKey, Refused> {
        self.submit_until(id, Request::Join { addr, send_only }, deadline)?;
        let call = self.takes_call("join_multicast");
        let Call::Join { group, .. } = call else { panic!("{call:?}") };
        Ok(group)
    }

    /// Begins the closing of a channel.
    pub(crate) fn closes(&mut self, channel: ChannelKey) -> Result<(), Refused> {
        self.start(Start::CloseChannel(channel))
    }

    /// Nothing comes between a call and its outcome. A call that follows from an earlier step is not begun by a look at it.
    fn between_calls(&mut self) {
        let is_begun =
            |open: &Open| !open.outcomes.is_empty() || !matches!(open.start, Start::Following | Start::Child);
        assert!(!self.open.take().is_some_and(|open| is_begun(&open)), "a call has no outcome yet");
    }

    /// Begins a request, without its calls. If it makes none, it has its effect now.
    fn start(&mut self, start: Start) -> Result<(), Refused> {
        self.between_calls();
        let Some(begun) = start.begin(&mut self.core, self.now)? else { panic!("{start:?} is not due") };
        if begun.call().is_some() {
            self.open = Some(Open { start, outcomes: Vec::new() });
        } else {
            let flow = begun.end(OK);
            assert!(matches!(flow, Flow::Done(Ok(_))), "{start:?}: {flow:?}");
        }
        self.core.check();
        Ok(())
    }

    /// Makes the calls with known outcomes on a copy of the core.
    fn play<'o>(&self, open: &'o Open) -> (Core, NextCall<'o>) {
        let mut core = self.core.clone();
        let next = match open.start.after(&mut core, self.now, &open.outcomes) {
            Flow::Next(begun) => Ok((begun.call().expect("a call"), begun.private_data())),
            Flow::Done(result) => Err(result),
        };
        (core, next)
    }

    /// Returns the next call, if there is one.
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        if self.open.is_none() && self.core.next().is_some() {
            self.open = Some(Open { start: Start::Following, outcomes: Vec::new() });
        }
        self.open.as_ref().and_then(|open| self.play(open).1.ok()).map(|(call, _)| call)
    }

    /// Begins the destruction of the next child of a listener that is destroyed.
    pub(crate) fn next_child(&mut self) -> Option<IdKey> {
        self.between_calls();
        let child = self.core.next_child()?.call()?.id();
        self.open = Some(Open { start: Start::Child, outcomes: Vec::new() });
        child
    }

    /// Returns the private data of the next call.
    pub(crate) fn call_data(&mut self) -> Vec<u8> {
        self.next_call();
        self.open.as_ref().and_then(|open| self.play(open).1.ok()).map_or(Vec::new(), |(_, data)| data.to_vec())
    }

    /// Asserts that the request is refused for `reason` and that the core does not change.
    pub(crate) fn refuses(&mut self, id: IdKey, request: Request<'static>, reason: RefuseReason) -> Refused {
        let (before, state) = (self.core.clone(), self.state(id));
        let refused = self.submit(id, request).unwrap_err();
        assert_eq!(refused, Refused::Request { id, request: request.request_kind(), state, reason });
        assert_eq!(self.core, before, "{request:?} was refused and changed something");
        refused
    }

    pub(crate) fn submit(&mut self, id: IdKey, request: Request<'static>) -> Result<(), Refused> {
        self.submit_until(id, request, Time::NEVER)
    }

    pub(crate) fn submit_until(&mut self, id: IdKey, request: Request<'static>, deadline: Time) -> Result<(), Refused> {
        self.start(Start::Request(id, request, deadline))
    }

    /// Makes a request. All its calls succeed.
    pub(crate) fn does(&mut self, id: IdKey, request: Request<'static>) {
        self.does_until(id, request, Time::NEVER);
    }

    pub(crate) fn does_until(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        self.submit_until(id, request, deadline).unwrap();
        self.all_well();
    }

    /// Makes a request with a deadline in 2 ms, which is returned. All its calls succeed.
    pub(crate) fn does_soon(&mut self, id: IdKey, request: Request<'static>) -> Time {
        let soon = self.within(SOON);
        self.does_until(id, request, soon);
        soon
    }

    /// Makes a request whose first call must be `name` and succeeds. Returns its end, if it has ended.
    pub(crate) fn makes(&mut self, id: IdKey, request: Request<'static>, name: &str) -> Option<Ended> {
        self.submit(id, request).unwrap();
        self.expect_call(name, OK)
    }

    /// Makes a request that ends with the failure of its first call.
    pub(crate) fn fails(&mut self, id: IdKey, request: Request<'static>, name: &str, errno: Errno) -> Failure {
        self.submit(id, request).unwrap();
        self.expect_call(name, Err(errno)).unwrap().result.unwrap_err()
    }

    /// Returns the next call, which must be `name`.
    pub(crate) fn takes_call(&mut self, name: &str) -> Call {
        let call = self.next_call().unwrap_or_else(|| panic!("no call, expected {name}"));
        assert_eq!(call.name(), name, "{call:?}");
        call
    }

    /// Reports the outcome of the next call. Returns the end of the request, if it has ended.
    pub(crate) fn answers(&mut self, outcome: Outcome) -> Option<Ended> {
        self.reports(outcome).unwrap()
    }

    /// As `answers`. A fault is an error.
    pub(crate) fn reports(&mut self, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        self.next_call();
        let mut open = self.open.take().expect("a call");
        open.outcomes.push(outcome);
        let (core, next) = self.play(&open);
        let Err(result) = next else {
            self.open = Some(open);
            return Ok(None);
        };
        self.core = core;
        self.core.check();
        let is_asked = !matches!(open.start, Start::Following | Start::Child);
        match result {
            Ok(progress) => {
                assert_eq!(progress, Progress::Done, "a call was made");
                Ok(is_asked.then_some(Ended { result: Ok(()) }))
            }
            Err(Error::Failed(failure)) => Ok(is_asked.then_some(Ended { result: Err(failure) })),
            Err(Error::Fault(fault)) => Err(fault),
            Err(Error::Refused(refused)) => panic!("{refused} after the call"),
        }
    }

    /// Makes the next call, which must be `name`, with this outcome.
    pub(crate) fn expect_call(&mut self, name: &str, outcome: Outcome) -> Option<Ended> {
        self.takes_call(name);
        self.answers(outcome)
    }

    pub(crate) fn no_call(&mut self) {
        assert_eq!(self.next_call(), None);
    }

    /// Makes every call that waits, with success. The children of listeners that are destroyed come last.
    pub(crate) fn all_well(&mut self) {
        // No test leads to so many calls.
        for _ in 0..100_000 {
            if self.next_call().is_none() && self.next_child().is_none() {
                return;
            }
            self.answers(OK);
        }
        panic!("there is no end of calls");
    }

    /// The device reports an event on the id's channel.
    pub(crate) fn report(&mut self, id: IdKey, kind: CmEvent) -> Admission {
        self.report_status(id, kind, 0)
    }

    pub(crate) fn report_status(&mut self, id: IdKey, kind: CmEvent, status: i32) -> Admission {
        let home = self.core.channel(id).unwrap();
        self.report_on(home, raw(id, kind, status))
    }

    pub(crate) fn report_on(&mut self, on: ChannelKey, raw: RawEvent<&[u8]>) -> Admission {
        self.between_calls();
        taken::compare(&self.core, on, raw);
        let admission = self.core.handle_event(on, raw).unwrap();
        self.core.check();
        admission
    }

    /// The device reports a connection request for a listener. Returns the id of the request.
    pub(crate) fn report_request(&mut self, listener: IdKey) -> IdKey {
        let device_channel = self.core.device_channel(listener).unwrap();
        let child = self.core.wants_event(device_channel).unwrap();
        let data =
            RawEvent { listener: Some(listener), private_data: &[1; 56][..], ..raw(child, CmEvent::ConnectRequest, 0) };
        assert_eq!(self.report_on(device_channel, data), Admission::Child(child));
        self.no_call();
        child
    }

    /// Takes the next event of a channel, which must be this one.
    pub(crate) fn expect_event(&mut self, on: ChannelKey, id: IdKey, kind: EventKind) -> Event {
        self.between_calls();
        let event = self.core.poll_event(on).unwrap_or_else(|| panic!("no event, expected {kind}"));
        self.core.check();
        assert_eq!((event.id, event.kind), (id, kind), "{event:?}");
        event
    }

    /// Takes the next event, and acks it if it owes an ack.
    pub(crate) fn sees(&mut self, on: ChannelKey, id: IdKey, kind: EventKind) -> Seen {
        let mut event = self.expect_event(on, id, kind);
        if let Some(ack_token) = event.ack_token.take() {
            self.core.ack(ack_token).unwrap();
            self.core.check();
        }
        Seen(event)
    }

    pub(crate) fn no_event(&mut self, on: ChannelKey) {
        assert_eq!(self.core.poll_event(on), None);
    }

    /// The device reports an event; the application takes and acks it.
    pub(crate) fn report_and_take(&mut self, id: IdKey, kind: CmEvent) {
        let home = self.core.channel(id).unwrap();
        assert_eq!(self.report(id, kind), Admission::Known);
        self.sees(home, id, cm(kind));
    }

    /// The application takes an event of an id, and owes its ack.
    pub(crate) fn owes(&mut self, on: ChannelKey, id: IdKey) -> Event {
        let device_channel = self.core.device_channel(id).unwrap();
        self.report_on(device_channel, raw(id, CmEvent::AddrChange, 0));
        self.expect_event(on, id, cm(CmEvent::AddrChange))
    }

    /// The number of acks that are owed for an id.
    pub(crate) fn owed(&self, id: IdKey) -> u32 {
        self.core.id_info(id).map_or(0, |it| it.owed)
    }

    pub(crate) fn is_sync(&self, id: IdKey) -> bool {
        self.core.id_info(id).is_some_and(|it| it.is_sync)
    }

    /// The channel that delivers the events of an id, and the one that the device reports them on.
    pub(crate) fn channels_of(&self, id: IdKey) -> (Option<ChannelKey>, Option<ChannelKey>) {
        (self.core.channel(id), self.core.device_channel(id))
    }

    pub(crate) fn acks(&mut self, event: Event) {
        self.between_calls();
        self.core.ack(event.ack_token.unwrap()).unwrap();
        self.core.check();
    }

    pub(crate) fn passes(&mut self, span: Duration) {
        self.between_calls();
        self.now = self.now.after(span);
        self.core.handle_timeout(self.now);
        self.core.check();
    }

    pub(crate) fn within(&self, span: Duration) -> Time {
        self.now.after(span)
    }

    pub(crate) fn state(&self, id: IdKey) -> State {
        self.core.state(id).unwrap()
    }
}
