//! Endpoints of the driver, for datagrams, and the state after an endpoint could not be created.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use cmid_blocking::{Blocking, Canceller, Endpoint, Error};
use cmid_proto::datapath::DataPath;
use cmid_proto::{CmEvent, CmOption, ConnParam, Errno, Limits, PortSpace, RequestKind, State, Time};
use cmid_sim::SimDevice;

use common::{SOON, host, qp, server};

fn driver(device: SimDevice) -> Blocking<SimDevice> {
    Blocking::new(device, Limits::SINGLE, Canceller::new().unwrap())
}

#[test]
fn a_lookup_between_two_endpoints() {
    let host = host();
    let settings = [CmOption::Tos(4)];
    let passive =
        Endpoint { port_space: PortSpace::Udp, src: Some(server()), dst: None, settings: &settings, timeout: SOON };
    let mut serving = driver(host.device());
    let listener = serving.create_endpoint(&passive).unwrap();
    assert_eq!(serving.drive().core().state(listener), Some(State::Bound));
    serving.drive().listen(listener, 4).unwrap();

    let mut asking = driver(host.device());
    let active = Endpoint { src: None, dst: Some(server()), ..passive };
    let id = asking.create_endpoint(&active).unwrap();
    assert_eq!(asking.drive().core().state(id), Some(State::RouteResolved));
    let _qp = asking.drive().attach_qp(id, qp).unwrap();
    let deadline = asking.drive().within(SOON);
    asking.drive().connect(id, ConnParam::default(), b"who", deadline).unwrap();

    let deadline = serving.drive().within(SOON);
    serving.drive().get_request(listener, deadline).unwrap();
    serving.finish(listener, RequestKind::GetRequest).unwrap();
    let request = serving.drive().core().sync_event(listener).unwrap();
    assert_eq!(&request.private_data[..4], b"who\0");
    serving.drive().migrate(request.id, None, Time::NEVER).unwrap();
    let param = ConnParam { qp_num: 77, ..ConnParam::default() };
    serving.drive().accept(request.id, param, b"me", Time::NEVER).unwrap();
    // An accept of a SIDR lookup is followed by no event on this side, so there is no wait.
    serving.finish(request.id, RequestKind::Accept).unwrap();

    asking.finish(id, RequestKind::Connect).unwrap();
    let answer = asking.drive().core().sync_event(id).unwrap();
    assert_eq!((answer.cm(), answer.datagram.unwrap().qp_num), (Some(CmEvent::Established), 77));
    assert_eq!(&answer.private_data[..3], b"me\0");

    asking.destroy_endpoint(id, |device, id| device.destroy_qp(id)).unwrap();
    for id in [request.id, listener] {
        serving.destroy_endpoint(id, |device, id| device.destroy_qp(id)).unwrap();
    }
    assert_eq!((asking.drive().core().ids().count(), serving.drive().core().ids().count()), (0, 0));
    assert_eq!(asking.finish(id, RequestKind::Connect).unwrap_err().errno(), Errno::ENOENT);
}

#[test]
fn a_wait_takes_events_of_others_out_of_its_way_and_keeps_them() {
    let host = host();
    let limits = Limits { events: 1, ..Limits::SINGLE };
    let mut one = Blocking::new(host.device(), limits, Canceller::new().unwrap());
    let way = Endpoint { port_space: PortSpace::Tcp, src: None, dst: Some(server()), settings: &[], timeout: SOON };
    let bound = Endpoint { src: Some(server()), dst: None, ..way };
    let other = one.create_endpoint(&bound).unwrap();
    // An event of the other id is undelivered, and the core has no room for another one.
    host.fail_over();
    one.wait(Some(SOON)).unwrap();
    let id = one.create_endpoint(&way).unwrap();
    assert_eq!(one.drive().core().state(id), Some(State::RouteResolved));
    assert_eq!(one.next_event(other).and_then(|event| event.cm()), Some(CmEvent::AddrChange));
    assert!(one.next_event(other).is_none());
}

#[test]
fn an_endpoint_that_cannot_be_made_leaves_nothing() {
    let host = host();
    let mut driver = driver(host.device());
    let way = Endpoint { port_space: PortSpace::Tcp, src: None, dst: Some(server()), settings: &[], timeout: SOON };
    let nobody = Endpoint { dst: Some("10.0.0.77:1".parse().unwrap()), timeout: Duration::from_millis(100), ..way };
    assert_eq!(driver.create_endpoint(&nobody).unwrap_err().errno(), Errno::ETIMEDOUT);
    let elsewhere = Endpoint { src: Some("192.0.2.1:1".parse().unwrap()), dst: None, ..way };
    assert_eq!(driver.create_endpoint(&elsewhere).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    let late = Endpoint { timeout: Duration::ZERO, ..way };
    assert!(matches!(driver.create_endpoint(&late).unwrap_err(), Error::TimedOut { .. } | Error::Core(_)));
    assert_eq!((driver.drive().core().ids().count(), driver.drive().core().channels().count()), (0, 0));
}
