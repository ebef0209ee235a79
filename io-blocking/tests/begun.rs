//! Requests made before their id entered synchronous mode: `finish` waits for their end, or refuses them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::thread;
use std::time::Duration;

use cmid_blocking::{Blocking, Canceller, Error, Listener};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Errno, IdKey, Limits, PortSpace, RefuseReason, Refused, RequestKind, State,
    Time,
};
use cmid_sim::SimDevice;

use common::{A_WHILE, SOON, Silent, host, patient, qp, server};

/// An address that no host has: its lookup ends at a deadline.
const NOBODY: &str = "10.0.0.77:7471";

struct Begun {
    driver: Blocking<SimDevice>,
    channel: ChannelKey,
    id: IdKey,
}

impl Begun {
    fn on(device: SimDevice, port_space: PortSpace) -> Self {
        let limits = Limits { channels: 8, ..Limits::SINGLE };
        let mut driver = Blocking::new(device, limits, Canceller::new().unwrap());
        let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
        let id = driver.drive().create_id(Some(channel), port_space).unwrap();
        Begun { driver, channel, id }
    }

    fn awaits(&mut self, kind: CmEvent) {
        loop {
            match self.driver.drive().next_event(self.channel) {
                Some(event) => return assert_eq!(event.cm(), Some(kind)),
                None => self.driver.wait(Some(SOON)).unwrap(),
            }
        }
    }

    /// An id with a route.
    fn routed(device: SimDevice) -> Self {
        let mut it = Self::on(device, PortSpace::Tcp);
        it.driver.drive().resolve_addr(it.id, None, server(), Time::NEVER).unwrap();
        it.awaits(CmEvent::AddrResolved);
        it.driver.drive().resolve_route(it.id, Time::NEVER).unwrap();
        it.awaits(CmEvent::RouteResolved);
        it
    }

    fn turns_sync(&mut self) {
        self.driver.drive().migrate(self.id, None, Time::NEVER).unwrap();
        assert!(self.driver.drive().core().id_info(self.id).is_some_and(|it| it.is_sync));
    }

    fn finishes(&mut self, request_kind: RequestKind) -> Result<(), Error> {
        self.driver.finish(self.id, request_kind)
    }

    fn state(&mut self) -> State {
        self.driver.drive().core().state(self.id).unwrap()
    }
}

#[track_caller]
fn timed_out(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
}

#[test]
fn a_resolve_is_awaited_and_its_event_is_there_to_be_taken() {
    let mut it = Begun::on(host().device(), PortSpace::Tcp);
    it.driver.drive().resolve_addr(it.id, None, server(), Time::NEVER).unwrap();
    it.turns_sync();
    it.finishes(RequestKind::ResolveAddr).unwrap();
    assert_eq!(it.state(), State::AddrResolved);
    assert_eq!(it.driver.next_event(it.id).unwrap().cm(), Some(CmEvent::AddrResolved));
    assert!(it.driver.next_event(it.id).is_none());
    let deadline = it.driver.drive().within(SOON);
    it.driver.drive().resolve_route(it.id, deadline).unwrap();
    it.finishes(RequestKind::ResolveRoute).unwrap();
}

#[test]
fn a_route_is_awaited() {
    let mut it = Begun::on(host().device(), PortSpace::Tcp);
    it.driver.drive().resolve_addr(it.id, None, server(), Time::NEVER).unwrap();
    it.awaits(CmEvent::AddrResolved);
    it.driver.drive().resolve_route(it.id, Time::NEVER).unwrap();
    it.turns_sync();
    it.finishes(RequestKind::ResolveRoute).unwrap();
    assert_eq!(it.state(), State::RouteResolved);
}

#[test]
fn it_ends_at_its_own_deadline_or_with_the_event_that_says_no() {
    let host = host();
    let mut it = Begun::on(host.device(), PortSpace::Tcp);
    // The kernel reports its timeout first: its time limit is seven eighths of this one, which a busy machine does not miss.
    let deadline = it.driver.drive().within(Duration::from_secs(4));
    it.driver.drive().resolve_addr(it.id, None, NOBODY.parse().unwrap(), deadline).unwrap();
    it.turns_sync();
    let result = it.finishes(RequestKind::ResolveAddr);
    assert!(
        matches!(&result, Err(Error::Ended { error, .. })
        if error.errno == Errno::ETIMEDOUT && error.event.cm() == Some(CmEvent::AddrError)),
        "{result:?}"
    );
    assert!(it.driver.next_event(it.id).is_none(), "the error has the event");

    let _listener = Listener::bind(host.device(), server()).unwrap();
    let mut it = Begun::routed(host.device());
    let deadline = it.driver.drive().within(A_WHILE);
    let param = ConnParam { qp_num: 501, ..ConnParam::default() };
    it.driver.drive().connect(it.id, param, &[], deadline).unwrap();
    it.turns_sync();
    timed_out(it.finishes(RequestKind::Connect));
    assert_eq!(it.state(), State::Failed);
}

#[test]
fn a_connect_is_rejected() {
    let host = host();
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let mut it = Begun::routed(host.device());
    let param = ConnParam { qp_num: 502, ..ConnParam::default() };
    it.driver.drive().connect(it.id, param, &[], Time::NEVER).unwrap();
    it.turns_sync();
    listener.accept(SOON).unwrap().reject(b"no").unwrap();
    let result = it.finishes(RequestKind::Connect);
    assert!(matches!(&result, Err(Error::Ended { error, .. }) if error.errno == Errno::ECONNREFUSED), "{result:?}");
}

#[test]
fn an_accept_is_awaited_and_a_listen_has_ended_with_its_call() {
    let host = host();
    let mut it = Begun::on(host.device(), PortSpace::Tcp);
    it.driver.drive().bind(it.id, server()).unwrap();
    it.driver.drive().listen(it.id, 4).unwrap();
    let _client = Silent::connecting(&host);
    let child = loop {
        match it.driver.drive().next_event(it.channel) {
            Some(event) => break event.id,
            None => it.driver.wait(Some(SOON)).unwrap(),
        }
    };
    let listener = std::mem::replace(&mut it.id, child);
    it.driver.drive().attach_qp(child, qp).unwrap();
    let deadline = it.driver.drive().within(A_WHILE);
    it.driver.drive().accept(child, ConnParam::default(), &[], deadline).unwrap();
    it.turns_sync();
    timed_out(it.finishes(RequestKind::Accept));

    // The wait for a listener's requests is the same as for any id in synchronous mode.
    it.id = listener;
    it.turns_sync();
    it.finishes(RequestKind::Listen).unwrap();
    let deadline = it.driver.drive().within(A_WHILE);
    it.driver.drive().get_request(listener, deadline).unwrap();
    timed_out(it.finishes(RequestKind::GetRequest));
}

#[test]
fn a_disconnect_and_a_teardown_are_awaited() {
    for (request_kind, after) in [(RequestKind::Disconnect, State::TimeWait), (RequestKind::Teardown, State::Closed)] {
        let host = host();
        let mut listener = Listener::bind(host.device(), server()).unwrap();
        let peer = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), qp).unwrap());
        let mut it = Begun::routed(host.device());
        let _qp = it.driver.drive().attach_qp(it.id, qp).unwrap();
        it.driver.drive().connect(it.id, ConnParam::default(), &[], Time::NEVER).unwrap();
        it.awaits(CmEvent::Established);
        // The peer does not reply: the kernel leaves the reply to the application.
        let _peer = peer.join().unwrap();
        let deadline = it.driver.drive().within(A_WHILE);
        if request_kind == RequestKind::Disconnect {
            it.driver.drive().disconnect(it.id, deadline).unwrap();
        } else {
            it.driver.drive().teardown(it.id, deadline).unwrap();
        }
        it.turns_sync();
        timed_out(it.finishes(request_kind));
        assert_eq!(it.state(), after);
    }
}

#[test]
fn what_is_not_under_way_any_more_or_not_in_synchronous_mode_is_refused() {
    let mut it = Begun::on(host().device(), PortSpace::Tcp);
    it.driver.drive().resolve_addr(it.id, None, server(), Time::NEVER).unwrap();
    let result = it.finishes(RequestKind::ResolveAddr);
    let reason = |result: Result<(), Error>| match result {
        Err(Error::Core(cmid_proto::Error::Refused(Refused::Request { reason, .. }))) => Some(reason),
        _ => None,
    };
    assert_eq!(reason(result), Some(RefuseReason::NotSync));
    it.awaits(CmEvent::AddrResolved);
    it.turns_sync();
    for request_kind in [RequestKind::ResolveAddr, RequestKind::Connect, RequestKind::Join, RequestKind::GetRequest] {
        let result = it.finishes(request_kind);
        assert!(matches!(result, Err(Error::NotSynchronous { .. })), "{request_kind}: {result:?}");
        assert_eq!(result.unwrap_err().errno(), Errno::EINVAL);
    }
    it.finishes(RequestKind::Bind).unwrap();
}

#[test]
fn a_join_that_was_begun_before_is_refused_and_its_event_is_there_to_be_taken() {
    let mut it = Begun::on(host().device(), PortSpace::Udp);
    it.driver.drive().bind(it.id, "10.0.0.1:0".parse().unwrap()).unwrap();
    it.driver.drive().join(it.id, "239.1.1.1:0".parse().unwrap(), false, Time::NEVER).unwrap();
    it.turns_sync();
    assert!(matches!(it.finishes(RequestKind::Join), Err(Error::NotSynchronous { during: "join_multicast" })));
    let joined = loop {
        match it.driver.next_event(it.id) {
            Some(event) => break event,
            None => it.driver.wait(Some(SOON)).unwrap(),
        }
    };
    assert_eq!((joined.cm(), joined.status), (Some(CmEvent::MulticastJoin), 0));
}
