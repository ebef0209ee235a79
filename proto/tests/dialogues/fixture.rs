//! A core and the steps of a dialogue; the test acts as the application, the device and the peer.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, ConnParam, Core, Ended, Event, EventKind, IdKey, Limits, Outcome,
    PortSpace, RawEvent, RefuseReason, Refused, RejectReason, Request, State, Time, Token,
};

pub(crate) const OK: Outcome = Ok(());

/// A core; most steps check its invariants.
#[derive(Clone)]
pub(crate) struct CoreFixture {
    pub(crate) core: Core,
    pub(crate) now: Time,
    limits: Limits,
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
        CoreFixture { core: Core::new(limits), now: Time(1_000), limits }
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
        let channel = self.core.open_channel(acks).unwrap();
        self.expect_call("create_event_channel", OK);
        channel
    }

    /// A new id; `None` makes it synchronous.
    pub(crate) fn id(&mut self, on: Option<ChannelKey>) -> IdKey {
        self.id_for(PortSpace::Tcp, on)
    }

    pub(crate) fn id_for(&mut self, space: PortSpace, on: Option<ChannelKey>) -> IdKey {
        let id = self.core.create_id(on, space).unwrap();
        self.all_well();
        id
    }

    /// Asserts that the request is refused for `reason` and that the core does not change.
    pub(crate) fn refuses(&mut self, id: IdKey, request: Request<'_>, reason: RefuseReason) -> Refused {
        let (before, state) = (self.core.clone(), self.state(id));
        let refused = self.submit(id, request).unwrap_err();
        assert_eq!(refused, Refused::Request { id, request: request.request_kind(), state, reason });
        assert_eq!(self.core, before, "{request:?} was refused and changed something");
        refused
    }

    pub(crate) fn submit(&mut self, id: IdKey, request: Request<'_>) -> Result<(), Refused> {
        self.submit_until(id, request, Time::NEVER)
    }

    pub(crate) fn submit_until(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<(), Refused> {
        let result = self.core.submit(self.now, id, request, deadline);
        self.core.check();
        result
    }

    /// Makes a request. All its calls succeed.
    pub(crate) fn does(&mut self, id: IdKey, request: Request<'_>) {
        self.does_until(id, request, Time::NEVER);
    }

    pub(crate) fn does_until(&mut self, id: IdKey, request: Request<'_>, deadline: Time) {
        self.submit_until(id, request, deadline).unwrap();
        self.all_well();
    }

    /// Takes the next call, which must be `name`, without an outcome.
    pub(crate) fn takes_call(&mut self, name: &str) -> (Token, Call) {
        let (token, call) = self.core.poll_call().unwrap_or_else(|| panic!("no call, expected {name}"));
        assert_eq!(call.name(), name, "{call:?}");
        self.core.check();
        (token, call)
    }

    pub(crate) fn answers(&mut self, token: Token, outcome: Outcome) -> Option<Ended> {
        let ended = self.core.handle_outcome(token, outcome).unwrap();
        self.core.check();
        ended
    }

    /// Takes the next call, which must be `name`, and reports its outcome.
    pub(crate) fn expect_call(&mut self, name: &str, outcome: Outcome) -> Option<Ended> {
        let (token, _) = self.takes_call(name);
        self.answers(token, outcome)
    }

    pub(crate) fn no_call(&mut self) {
        assert_eq!(self.core.poll_call(), None);
    }

    /// Makes every call that waits, with success.
    pub(crate) fn all_well(&mut self) {
        // No test leads to so many calls.
        for _ in 0..100_000 {
            let Some((token, _)) = self.core.poll_call() else { return };
            self.answers(token, OK);
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
        let after = |fixture: &mut Self, from: State, request: Request<'_>| {
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
            self.core.close_channel(channel).unwrap();
        }
        self.all_well();
        while self.core.poll_readable().is_some() {}
        self.core.check();
        assert_eq!((self.core.ids(), self.core.channels()), (0, 0));
        assert_eq!((self.core.poll_timeout(), self.core.has_work()), (None, false));
        assert_eq!(self.core.counters().faults, 0);
    }
}
