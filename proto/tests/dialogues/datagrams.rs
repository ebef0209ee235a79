//! Datagram services: a lookup and its answer (SIDR), without a connection.

use cmid_proto::datapath::AhAttr;
use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, ConnParam, Datagram, Errno, IdKey, PortSpace, RawEvent, RefuseReason,
    RejectReason, Request, RequestKind, Service, State,
};

use crate::fixture::{BIND, CoreFixture, OK, REJECT, SOON, TO_SYNC, accept, cm, connect, param, raw};

/// An id for datagrams that has a route.
fn routed(fixture: &mut CoreFixture, on: ChannelKey) -> IdKey {
    let id = fixture.id_for(PortSpace::Udp, Some(on));
    fixture.lead(id, State::RouteResolved);
    id
}

#[test]
fn each_port_space_has_its_number_and_its_service() {
    for (space, code, service) in [
        (PortSpace::Tcp, 0x0106, Service::Connected),
        (PortSpace::Ib, 0x013f, Service::Connected),
        (PortSpace::Udp, 0x0111, Service::Datagram),
        (PortSpace::Ipoib, 0x0002, Service::Datagram),
    ] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = fixture.creates(space, Some(channel)).unwrap();
        let call = fixture.takes_call("create_id");
        assert_eq!(call, Call::CreateId { id, channel, port_space: space });
        fixture.answers(OK);
        assert_eq!(
            (space.code(), space.service(), fixture.core.id_info(id).map(|it| it.port_space)),
            (code, service, Some(space))
        );
    }
}

#[test]
fn a_lookup_is_answered_and_the_id_is_of_no_more_use() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = routed(&mut fixture, channel);
    // A lookup carries no QP number, so none is required.
    fixture.submit(id, Request::Connect { param: ConnParam::default(), private_data: b"who" }).unwrap();
    let call = fixture.takes_call("connect");
    assert_eq!(call, Call::Connect { id, param: ConnParam::default() });
    assert_eq!(fixture.call_data(), b"who");
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    assert_eq!(fixture.state(id), State::SidrReqSent);
    let way = Datagram { qp_num: 17, qkey: 0x0123_4567, path: AhAttr::default() };
    let event = RawEvent { datagram: Some(way), private_data: &b"me"[..], ..raw(id, CmEvent::Established, 0) };
    assert_eq!(fixture.report_on(channel, event), Admission::Known);
    let event = fixture.sees(channel, id, cm(CmEvent::Established));
    assert_eq!((event.datagram, &*event.private_data, fixture.state(id)), (Some(way), &b"me"[..], State::SidrResolved));
    for (request, reason) in [
        (connect(), RefuseReason::WrongState),
        (accept(), RefuseReason::WrongState),
        (Request::Disconnect, RefuseReason::NotConnected),
        (Request::Teardown, RefuseReason::NotConnected),
        (Request::Establish, RefuseReason::WrongState),
        (Request::Notify, RefuseReason::WrongState),
    ] {
        fixture.refuses(id, request, reason);
    }
    // A change of the peer's link address does not affect a lookup that was answered.
    fixture.report_status(id, CmEvent::Unreachable, -110);
    fixture.sees(channel, id, cm(CmEvent::Unreachable));
    assert_eq!(fixture.state(id), State::SidrResolved);
    assert_eq!(fixture.report(id, CmEvent::Established), Admission::Late);
}

#[test]
fn a_lookup_is_served_without_any_event_to_follow() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let listener = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.does(listener, crate::fixture::LISTEN);
    let child = fixture.report_request(listener);
    assert_eq!(
        (fixture.state(child), fixture.core.id_info(child).map(|it| it.port_space)),
        (State::SidrReqReceived, Some(PortSpace::Udp))
    );
    fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
    fixture.refuses(child, Request::Establish, RefuseReason::Breaks);
    fixture.refuses(child, Request::Accept { param: ConnParam::default(), private_data: &[] }, RefuseReason::NoQp);
    fixture.does(child, Request::AttachQp);
    fixture.does_soon(child, Request::Accept { param: ConnParam::default(), private_data: b"me" });
    assert_eq!(
        (fixture.state(child), fixture.core.poll_timeout()),
        (State::SidrResolved, None),
        "there is nothing to wait for"
    );
    assert_eq!(fixture.report(child, CmEvent::Established), Admission::Late);
    fixture.refuses(child, accept(), RefuseReason::WrongState);
    fixture.refuses(child, REJECT, RefuseReason::WrongState);
    fixture.does(child, Request::DetachQp);
}

/// No event follows it.
#[test]
fn a_lookup_on_a_failed_channel_is_answered() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::SidrReqReceived);
    while fixture.core.handle_unreadable(channel) {}
    fixture.does(id, accept());
}

#[test]
fn a_lookup_that_is_not_answered_or_is_rejected_fails() {
    for (kind, status, errno) in [
        (CmEvent::Unreachable, -110, Errno::ETIMEDOUT),
        (CmEvent::Unreachable, 2, Errno::ENOENT),
        (CmEvent::AddrError, -22, Errno::EINVAL),
    ] {
        for synchronous in [false, true] {
            let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
            let id = routed(&mut fixture, channel);
            if synchronous {
                fixture.does(id, TO_SYNC);
            }
            fixture.does(id, connect());
            assert_eq!(fixture.report_status(id, kind, status), Admission::Known);
            if synchronous {
                assert_eq!(fixture.core.sync_result(id), Some(Err(errno)));
            } else {
                assert_eq!(fixture.sees(channel, id, cm(kind)).result(), Err(errno));
            }
            assert_eq!(fixture.state(id), State::Failed);
        }
    }
}

#[test]
fn private_data_is_limited_by_what_the_message_of_the_service_holds() {
    for (request_kind, connected, datagram) in [
        (RequestKind::Connect, 56, 180),
        (RequestKind::Accept, 196, 136),
        (RequestKind::Reject, 148, 136),
        (RequestKind::Bind, 0, 0),
    ] {
        assert_eq!(request_kind.private_data_max(Service::Connected), connected);
        assert_eq!(request_kind.private_data_max(Service::Datagram), datagram);
    }
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let active = routed(&mut fixture, channel);
    let [one, two] =
        [fixture.in_state(channel, State::SidrReqReceived), fixture.in_state(channel, State::SidrReqReceived)];
    static DATA: [u8; 181] = [7; 181];
    let reason = RejectReason::Consumer;
    let too_long = |max: usize| RefuseReason::PrivateDataTooLong { len: max + 1, max };
    fixture.refuses(active, Request::Connect { param: param(), private_data: &DATA }, too_long(180));
    fixture.refuses(one, Request::Accept { param: param(), private_data: &DATA[..137] }, too_long(136));
    let refused = fixture.refuses(two, Request::Reject { reason, private_data: &DATA[..137] }, too_long(136));
    assert_eq!(refused.errno(), Errno::EINVAL);
    fixture.does(active, Request::Connect { param: param(), private_data: &DATA[..180] });
    fixture.does(one, Request::Accept { param: param(), private_data: &DATA[..136] });
    fixture.does(two, Request::Reject { reason, private_data: &DATA[..136] });
    assert_eq!(fixture.state(two), State::Failed);
}

#[test]
fn in_synchronous_mode_a_lookup_ends_at_its_deadline_and_its_answer_is_late() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = routed(&mut fixture, channel);
    fixture.does(id, TO_SYNC);
    fixture.does_soon(id, connect());
    fixture.passes(SOON);
    assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Failed, None));
    assert_eq!(fixture.report(id, CmEvent::Established), Admission::Late);
    assert_eq!(fixture.report_status(id, CmEvent::AddrError, -1), Admission::Late);
}

#[test]
fn in_synchronous_mode_a_lookup_waits_and_its_answer_does_not() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (active, passive) = (routed(&mut fixture, channel), fixture.in_state(channel, State::SidrReqReceived));
    for id in [active, passive] {
        fixture.does(id, TO_SYNC);
    }
    fixture.does(active, connect());
    assert_eq!(fixture.core.sync_result(active), None);
    fixture.refuses(active, Request::AttachQp, RefuseReason::Busy(RequestKind::Connect));
    fixture.report(active, CmEvent::Established);
    assert_eq!(fixture.core.sync_result(active), Some(Ok(())));
    fixture.does(active, Request::AttachQp);
    fixture.does(passive, accept());
    assert_eq!((fixture.core.sync_result(passive), fixture.state(passive)), (None, State::SidrResolved));
    fixture.refuses(passive, Request::AttachQp, RefuseReason::NumberSent);
}

#[test]
fn a_qp_may_be_put_on_the_id_before_during_and_after_a_lookup_and_before_the_answer_to_one() {
    for state in [State::SidrReqSent, State::SidrReqReceived, State::SidrResolved] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = if state == State::SidrResolved {
            let id = fixture.in_state(channel, State::SidrReqSent);
            fixture.report_and_take(id, CmEvent::Established);
            id
        } else {
            fixture.in_state(channel, state)
        };
        assert_eq!(fixture.state(id), state);
        fixture.does(id, Request::AttachQp);
        fixture.refuses(id, Request::AttachQp, RefuseReason::HasQp);
        fixture.does(id, Request::DetachQp);
        fixture.refuses(id, Request::DetachQp, RefuseReason::NoQp);
    }
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.refuses(id, Request::AttachQp, RefuseReason::NoDevice);
    fixture.does(id, BIND);
    fixture.does(id, Request::AttachQp);
}

/// The answer to a lookup carries the number of the QP that the peer sends to.
#[test]
fn a_qp_comes_too_late_for_a_lookup_that_was_accepted() {
    for with_qp in [false, true] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::SidrReqReceived);
        if with_qp {
            fixture.does(id, Request::AttachQp);
        }
        fixture.does(id, accept());
        assert_eq!(fixture.state(id), State::SidrResolved);
        if with_qp {
            fixture.refuses(id, Request::AttachQp, RefuseReason::HasQp);
            fixture.does(id, Request::DetachQp);
        }
        assert_eq!(fixture.refuses(id, Request::AttachQp, RefuseReason::NumberSent).errno(), Errno::EINVAL);
        // The core keeps this across a migration and a release to another core.
        fixture.does(id, TO_SYNC);
        let (released, _) = fixture.core.release(id).unwrap();
        let (id, _) = fixture.core.adopt(released).unwrap();
        fixture.refuses(id, Request::AttachQp, RefuseReason::NumberSent);
    }
}

#[test]
fn a_listener_that_goes_takes_its_undelivered_lookups_along() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let listener = fixture.id_for(PortSpace::Ipoib, Some(channel));
    fixture.does(listener, crate::fixture::LISTEN);
    let (seen, unseen) = (fixture.report_request(listener), fixture.report_request(listener));
    fixture.sees(channel, seen, cm(CmEvent::ConnectRequest));
    fixture.does(listener, Request::Destroy);
    assert_eq!((fixture.state(seen), fixture.core.state(unseen)), (State::SidrReqReceived, None));
    fixture.does(seen, accept());
}
