//! The life of an id that connects.

use cmid_proto::{Acks, Admission, Call, CmEvent, ConnParam, Errno, RefuseReason, Request, State};

use crate::fixture::{BIND, CoreFixture, OK, RESOLVE, addr, cm, connect, param};

#[test]
fn an_id_without_a_qp_connects_establishes_and_disconnects() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.submit(id, RESOLVE).unwrap();
    let call = fixture.takes_call("resolve_addr");
    assert_eq!(call, Call::ResolveAddr { id, src: None, dst: addr(2), timeout_ms: i32::MAX });
    assert!(fixture.answers(OK).unwrap().result.is_ok());
    fixture.report_and_take(id, CmEvent::AddrResolved);
    fixture.does(id, Request::ResolveRoute);
    fixture.report_and_take(id, CmEvent::RouteResolved);

    fixture.submit(id, connect()).unwrap();
    let call = fixture.takes_call("connect");
    assert_eq!(call, Call::Connect { id, param: param() });
    assert_eq!(fixture.call_data(), b"hello");
    fixture.answers(OK);
    fixture.report_and_take(id, CmEvent::ConnectResponse);
    assert_eq!(fixture.state(id), State::Responded);
    fixture.does(id, Request::Establish);
    assert_eq!(fixture.state(id), State::Connected);

    fixture.does(id, Request::Disconnect);
    fixture.report_and_take(id, CmEvent::Disconnected);
    fixture.report_and_take(id, CmEvent::TimewaitExit);
    assert_eq!(fixture.state(id), State::Closed);
}

#[test]
fn an_id_with_a_qp_is_established_by_the_library_and_answers_the_peers_disconnect() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::RouteResolved);
    fixture.does(id, Request::AttachQp);
    fixture.does(id, Request::Connect { param: ConnParam::default(), private_data: &[] });
    fixture.report_and_take(id, CmEvent::Established);
    assert_eq!(fixture.state(id), State::Connected);
    fixture.report_and_take(id, CmEvent::Disconnected);
    fixture.does(id, Request::Disconnect);
    fixture.report_and_take(id, CmEvent::TimewaitExit);
    fixture.does(id, Request::DetachQp);
}

#[test]
fn what_went_wrong_on_the_way_can_be_tried_again() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.does(id, RESOLVE);
    assert_eq!(fixture.report_status(id, CmEvent::AddrError, -110), Admission::Known);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrError)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.state(id), State::Bound);
    fixture.does(id, RESOLVE);
    fixture.report_and_take(id, CmEvent::AddrResolved);
    fixture.does(id, Request::ResolveRoute);
    fixture.report_and_take(id, CmEvent::RouteError);
    assert_eq!(fixture.state(id), State::AddrResolved);
    fixture.does(id, Request::ResolveRoute);
    fixture.report_and_take(id, CmEvent::RouteResolved);
    let failure = fixture.fails(id, connect(), "connect", Errno::EINVAL);
    assert_eq!((failure.errno, failure.state), (Errno::EINVAL, State::RouteResolved));
    fixture.does(id, connect());
}

#[test]
fn a_rejected_id_reports_the_reason_and_can_only_be_destroyed() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connecting);
    fixture.report_status(id, CmEvent::Rejected, 28);
    let event = fixture.sees(channel, id, cm(CmEvent::Rejected));
    assert_eq!((event.status, event.result()), (28, Err(Errno::ECONNREFUSED)));
    assert_eq!(fixture.state(id), State::Failed);
    assert!(fixture.submit(id, connect()).is_err());
}

#[test]
fn the_guards_refuse_what_the_table_leaves_open() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::RouteResolved);
    let before = fixture.core.clone();
    for (request, reason) in [
        (Request::Connect { param: ConnParam::default(), private_data: &[] }, RefuseReason::NoQp),
        (
            Request::Connect { param: param(), private_data: &[0; 57] },
            RefuseReason::PrivateDataTooLong { len: 57, max: 56 },
        ),
        (Request::DetachQp, RefuseReason::NoQp),
    ] {
        let refused = fixture.submit(id, request).unwrap_err();
        assert_eq!(refused.to_string(), format!("{} on {id} while route resolved: {reason}", request.request_kind()));
        assert_eq!(fixture.core, before);
    }
    fixture.does(id, Request::AttachQp);
    let twice = fixture.submit(id, Request::AttachQp).unwrap_err();
    assert!(twice.to_string().ends_with("the id has a QP"));
    let (now, idle) = (fixture.now, fixture.id(Some(channel)));
    let refused = fixture.submit_until(idle, BIND, now).unwrap_err();
    assert!(refused.to_string().ends_with("the deadline has passed"), "{refused}");
    let dst = "[fe80::1]:1".parse().unwrap();
    assert!(fixture.submit(idle, Request::ResolveAddr { src: Some(addr(1)), dst }).is_err());
}

#[test]
fn a_removed_device_ends_everything_but_the_destroy() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connecting);
    fixture.report_and_take(id, CmEvent::DeviceRemoval);
    assert_eq!(fixture.report(id, CmEvent::Established), Admission::Late);
    assert!(fixture.submit(id, Request::Disconnect).is_err());
    assert_eq!(fixture.core.poll_timeout(), None);
}

/// The peer receives the QP number with the request, the reply or the confirmation.
#[test]
fn a_qp_comes_too_late_once_the_peer_has_a_number() {
    for state in [State::Connecting, State::Responded, State::Accepting, State::Connected] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, state);
        assert_eq!(fixture.refuses(id, Request::AttachQp, RefuseReason::NumberSent).errno(), Errno::EINVAL);
    }
    // A request that the device has refused was not sent.
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::RouteResolved);
    fixture.fails(id, connect(), "connect", Errno::ENOMEM);
    fixture.does(id, Request::AttachQp);
}
