//! A core and the steps of a dialogue; the test acts as the application, the device and the peer.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, ConnParam, Core, Error, Event, EventKind, Failure, Fault, Flow, IdKey,
    Limits, Outcome, PortSpace, Progress, RawEvent, RefuseReason, Refused, RejectReason, Request, State, Time,
};

pub(crate) const OK: Outcome = Ok(());

/// A core; most steps check its invariants.
#[derive(Clone)]
pub(crate) struct CoreFixture {
    pub(crate) core: Core,
    pub(crate) now: Time,
    limits: Limits,
    /// A request whose calls are to be made.
    open: Option<Open>,
}

/// A request, and the outcomes of its first calls. A call borrows the core, and a dialogue looks at the core between the
/// calls: so each call is made on a copy, which replaces the core when the request has ended.
#[derive(Clone)]
struct Open {
    start: Start,
    outcomes: Vec<Outcome>,
}

#[derive(Clone, Copy)]
enum Start {
    OpenChannel(Acks),
    CloseChannel(ChannelKey),
    Create(Option<ChannelKey>, PortSpace),
    Request(IdKey, Request<'static>, Time),
    Following,
    Child,
}

impl Start {
    fn begin<'c>(&'c self, core: &'c mut Core, now: Time) -> Result<Flow<'c, 'c>, Refused> {
        Ok(match *self {
            Start::OpenChannel(acks) => Flow::Next(core.open_channel(acks)?.1),
            Start::CloseChannel(channel) => Flow::Next(core.close_channel(channel)?),
            Start::Create(on, space) => Flow::Next(core.create_id(on, space)?.1),
            Start::Request(id, ref request, deadline) => core.begin(now, id, request, deadline)?,
            Start::Following => core.next().map_or(Flow::Done(Ok(Progress::Done)), Flow::Next),
            Start::Child => core.next_child().map_or(Flow::Done(Ok(Progress::Done)), Flow::Next),
        })
    }
}

/// The end of a request that has made a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) result: Result<Progress, Failure>,
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
        CoreFixture { core: Core::new(limits), now: Time(1_000), limits, open: None }
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

    pub(crate) fn channel(&mut self, acks: Acks) -> ChannelKey {
        let channel = self.core.open_channel(acks).unwrap().0;
        self.start(Start::OpenChannel(acks)).unwrap();
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

    pub(crate) fn closes(&mut self, channel: ChannelKey) -> Result<(), Refused> {
        self.start(Start::CloseChannel(channel))
    }

    /// Begins a request, without its calls. If it makes none, it has its effect now.
    fn start(&mut self, start: Start) -> Result<(), Refused> {
        assert!(self.open.is_none(), "the calls of a request come before the next request");
        let is_open = matches!(start.begin(&mut self.core, self.now)?, Flow::Next(_));
        self.open = is_open.then(|| Open { start, outcomes: Vec::new() });
        self.core.check();
        Ok(())
    }

    /// Makes the calls with known outcomes on a copy of the core. Returns the copy and the next call, or the result.
    fn play(&self, open: &Open) -> (Core, Result<Call, Result<Progress, Error>>) {
        let mut core = self.core.clone();
        let mut flow = open.start.begin(&mut core, self.now).unwrap();
        for &outcome in &open.outcomes {
            let Flow::Next(begun) = flow else { panic!("more outcomes than calls") };
            flow = begun.end(outcome);
        }
        let next = match flow {
            Flow::Next(begun) => Ok(*begun.call()),
            Flow::Done(result) => Err(result),
        };
        (core, next)
    }

    /// Returns the next call, if there is one.
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        if self.open.is_none() && self.core.next().is_some() {
            self.open = Some(Open { start: Start::Following, outcomes: Vec::new() });
        }
        self.open.as_ref().and_then(|open| self.play(open).1.ok())
    }

    /// Begins the destruction of the next child of a listener that is destroyed.
    pub(crate) fn next_child(&mut self) -> Option<IdKey> {
        let child = self.core.next_child()?.call().id();
        self.open = Some(Open { start: Start::Child, outcomes: Vec::new() });
        child
    }

    /// Returns the private data of the next call.
    pub(crate) fn call_data(&mut self) -> Vec<u8> {
        self.next_call();
        let Some(open) = &self.open else { return Vec::new() };
        let mut core = self.core.clone();
        let mut flow = open.start.begin(&mut core, self.now).unwrap();
        for &outcome in &open.outcomes {
            let Flow::Next(begun) = flow else { panic!("more outcomes than calls") };
            flow = begun.end(outcome);
        }
        if let Flow::Next(begun) = flow { begun.private_data().to_vec() } else { Vec::new() }
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

    /// Returns the next call, which must be `name`.
    pub(crate) fn takes_call(&mut self, name: &str) -> Call {
        let call = self.next_call().unwrap_or_else(|| panic!("no call, expected {name}"));
        assert_eq!(call.name(), name, "{call:?}");
        call
    }

    /// Reports the outcome of the next call. Returns the end of the request, if it has ended; a fault is an error.
    pub(crate) fn answers(&mut self, outcome: Outcome) -> Result<Option<Ended>, Fault> {
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
            Ok(progress) => Ok(is_asked.then_some(Ended { result: Ok(progress) })),
            Err(Error::Failed(failure)) => Ok(is_asked.then_some(Ended { result: Err(failure) })),
            Err(Error::Fault(fault)) => Err(fault),
            Err(Error::Refused(refused)) => panic!("{refused} after the call"),
        }
    }

    /// Makes the next call, which must be `name`, with this outcome.
    pub(crate) fn expect_call(&mut self, name: &str, outcome: Outcome) -> Option<Ended> {
        self.takes_call(name);
        self.answers(outcome).unwrap()
    }

    pub(crate) fn no_call(&mut self) {
        assert_eq!(self.next_call(), None);
    }

    /// Makes every call that waits, with success.
    pub(crate) fn all_well(&mut self) {
        // No test leads to so many calls.
        for _ in 0..100_000 {
            if self.next_call().is_none() {
                return;
            }
            self.answers(OK).unwrap();
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

    pub(crate) fn acks(&mut self, event: Event) {
        self.core.ack(event.ack_token.unwrap()).unwrap();
        self.core.check();
    }

    pub(crate) fn passes(&mut self, span: Duration) {
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

    /// A listener and the id of a request that was taken.
    pub(crate) fn requested(&mut self, on: ChannelKey) -> (IdKey, IdKey) {
        let listener = self.id(Some(on));
        self.does(listener, LISTEN);
        let child = self.report_request(listener);
        self.sees(on, child, cm(CmEvent::ConnectRequest));
        (listener, child)
    }

    /// A new id in `state`, with no undelivered event and no ack owed.
    pub(crate) fn in_state(&mut self, on: ChannelKey, state: State) -> IdKey {
        let lead = |fixture: &mut Self, from: State| fixture.in_state(on, from);
        let after = |fixture: &mut Self, from: State, request: Request<'static>| {
            let id = lead(fixture, from);
            fixture.does(id, request);
            id
        };
        let reported = |fixture: &mut Self, from: State, kind: CmEvent| {
            let id = lead(fixture, from);
            fixture.report_and_take(id, kind);
            id
        };
        let id = match state {
            State::Idle => self.id(Some(on)),
            State::Bound => after(self, State::Idle, BIND),
            State::AddrResolving => after(self, State::Idle, RESOLVE),
            State::AddrResolved => reported(self, State::AddrResolving, CmEvent::AddrResolved),
            State::RouteResolving => after(self, State::AddrResolved, Request::ResolveRoute),
            State::RouteResolved => reported(self, State::RouteResolving, CmEvent::RouteResolved),
            State::Connecting => after(self, State::RouteResolved, connect()),
            State::Responded => reported(self, State::Connecting, CmEvent::ConnectResponse),
            State::Requested => self.requested(on).1,
            State::Accepting => after(self, State::Requested, accept()),
            State::Connected => after(self, State::Responded, Request::Establish),
            State::Disconnecting => after(self, State::Connected, Request::Disconnect),
            State::Closing => after(self, State::Connected, Request::Teardown),
            State::PeerClosed => reported(self, State::Connected, CmEvent::Disconnected),
            State::TimeWait => after(self, State::PeerClosed, Request::Disconnect),
            State::Closed => reported(self, State::TimeWait, CmEvent::TimewaitExit),
            State::SidrReqSent => {
                let id = self.id_for(PortSpace::Udp, Some(on));
                self.does(id, RESOLVE);
                self.report_and_take(id, CmEvent::AddrResolved);
                self.does(id, Request::ResolveRoute);
                self.report_and_take(id, CmEvent::RouteResolved);
                self.does(id, connect());
                id
            }
            State::SidrReqReceived => {
                let listener = self.id_for(PortSpace::Udp, Some(on));
                self.does(listener, LISTEN);
                let child = self.report_request(listener);
                self.sees(on, child, cm(CmEvent::ConnectRequest));
                child
            }
            State::SidrResolved => after(self, State::SidrReqReceived, accept()),
            State::Failed => reported(self, State::Connecting, CmEvent::Rejected),
            State::Listening => after(self, State::Idle, LISTEN),
            State::Removed => reported(self, State::Bound, CmEvent::DeviceRemoval),
            State::Destroying => {
                let id = lead(self, State::Bound);
                self.submit(id, Request::Destroy).unwrap();
                id
            }
        };
        assert_eq!(self.state(id), state);
        id
    }

    /// Destroys every id, closes every channel, and asserts that nothing is left.
    pub(crate) fn ends(mut self, ids: &[IdKey], channels: &[ChannelKey]) {
        for &id in ids {
            if self.core.state(id).is_some_and(|state| state != State::Destroying) {
                self.does(id, Request::Destroy);
            }
        }
        self.all_well();
        for &channel in channels {
            while let Some(event) = self.core.poll_event(channel) {
                assert_eq!(event.ack_token, None, "{event:?} is not acked");
            }
            self.closes(channel).unwrap();
            self.all_well();
        }
        self.all_well();
        while self.core.poll_readable().is_some() {}
        self.core.check();
        assert_eq!((self.core.ids(), self.core.channels()), (0, 0));
        assert_eq!((self.core.poll_timeout(), self.core.has_work()), (None, false));
        assert_eq!(self.core.counters().faults, 0);
    }
}
