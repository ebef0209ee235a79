//! Requests made before their id entered synchronous mode: `finish` refuses them, and their events are there to be
//! taken.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use cmid_blocking::{Blocking, Canceller, Error};
use cmid_proto::{Acks, CmEvent, Errno, Event, IdKey, Limits, PortSpace, RefuseReason, Refused, RequestKind, Time};
use cmid_sim::SimDevice;

use common::{SOON, host, server};

struct Begun {
    driver: Blocking<SimDevice>,
    id: IdKey,
}

impl Begun {
    fn on(device: SimDevice, port_space: PortSpace) -> Self {
        let limits = Limits { channels: 8, ..Limits::SINGLE };
        let mut driver = Blocking::new(device, limits, Canceller::new().unwrap());
        let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
        let id = driver.drive().create_id(Some(channel), port_space).unwrap();
        Begun { driver, id }
    }

    fn event(&mut self) -> Event {
        loop {
            match self.driver.next_event(self.id) {
                Some(event) => return event,
                None => self.driver.wait(Some(SOON)).unwrap(),
            }
        }
    }

    fn turns_sync(&mut self) {
        self.driver.drive().migrate(self.id, None, Time::NEVER).unwrap();
        assert!(self.driver.drive().core().id_info(self.id).is_some_and(|it| it.is_sync));
    }

    fn finishes(&mut self, request_kind: RequestKind) -> Result<(), Error> {
        self.driver.finish(self.id, request_kind)
    }
}

#[test]
fn a_resolve_ends_by_its_event_and_the_next_request_is_synchronous() {
    let mut it = Begun::on(host().device(), PortSpace::Tcp);
    it.driver.drive().resolve_addr(it.id, None, server(), Time::NEVER).unwrap();
    it.turns_sync();
    assert!(matches!(it.finishes(RequestKind::ResolveAddr), Err(Error::NotSynchronous { during: "resolve_addr" })));
    assert_eq!(it.event().cm(), Some(CmEvent::AddrResolved));
    let deadline = it.driver.drive().within(SOON);
    it.driver.drive().resolve_route(it.id, deadline).unwrap();
    it.finishes(RequestKind::ResolveRoute).unwrap();
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
    assert_eq!(it.event().cm(), Some(CmEvent::AddrResolved));
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
    let joined = it.event();
    assert_eq!((joined.cm(), joined.status), (Some(CmEvent::MulticastJoin), 0));
}
