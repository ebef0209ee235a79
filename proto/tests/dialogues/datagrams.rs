//! Services for datagrams: a lookup and its answer (SIDR), and no connection.

use std::time::Duration;

use cmid_proto::{
    Acks, Admission, AhAttr, Call, ChannelKey, CmEvent, ConnParam, Datagram, Errno, EventKind, Fault, IdKey, PortSpace,
    RawEvent, Request, Service, State, Verb, Why, private_data_max,
};

use crate::fixture::{BIND, OK, REJECT, RESOLVE, Stage, TO_SYNC, accept, cm, connect, param, raw};

const SOON: Duration = Duration::from_millis(2);

/// An id for datagrams that has a route.
fn routed(stage: &mut Stage, on: ChannelKey) -> IdKey {
    let id = stage.id_for(PortSpace::Udp, Some(on));
    stage.does(id, RESOLVE);
    stage.tells(id, CmEvent::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.tells(id, CmEvent::RouteResolved);
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
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.core.create_id(Some(channel), space).unwrap();
        let (token, call) = stage.takes_call("create_id");
        assert_eq!(call, Call::CreateId { id, channel, port_space: space });
        stage.answers(token, OK);
        assert_eq!((space.code(), space.service(), stage.core.port_space(id)), (code, service, Some(space)));
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_lookup_is_answered_and_the_id_is_of_no_more_use() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = routed(&mut stage, channel);
    // A lookup carries no QP number, so none has to be given.
    stage.asks(id, Request::Connect { param: ConnParam::default(), private_data: b"who" }).unwrap();
    let (token, call) = stage.takes_call("connect");
    assert_eq!(call, Call::Connect { id, param: ConnParam::default() });
    assert_eq!(stage.core.call_data(token), b"who");
    assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
    assert_eq!(stage.state(id), State::Asking);
    let way = Datagram { qp_num: 17, qkey: 0x0123_4567, path: AhAttr::default() };
    let told = RawEvent { datagram: Some(way), private_data: b"me", ..raw(id, CmEvent::Established, 0) };
    assert_eq!(stage.says_on(channel, told), Admission::Known);
    let event = stage.sees(channel, id, cm(CmEvent::Established));
    assert_eq!((event.datagram, &*event.private_data, stage.state(id)), (Some(way), &b"me"[..], State::Answered));
    for (request, why) in [
        (connect(), Why::WrongState),
        (accept(), Why::WrongState),
        (Request::Disconnect, Why::NotConnected),
        (Request::Teardown, Why::NotConnected),
        (Request::Establish, Why::WrongState),
        (Request::Notify, Why::WrongState),
    ] {
        stage.refuses(id, request, why);
    }
    // The peer's link address may change at any time; it does not concern what has been looked up.
    stage.says_status(id, CmEvent::Unreachable, -110);
    stage.sees(channel, id, cm(CmEvent::Unreachable));
    assert_eq!(stage.state(id), State::Answered);
    assert_eq!(stage.says(id, CmEvent::Established), Admission::Late);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_lookup_is_served_without_any_event_to_follow() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let listener = stage.id_for(PortSpace::Udp, Some(channel));
    stage.does(listener, crate::fixture::LISTEN);
    let child = stage.says_request(listener);
    assert_eq!((stage.state(child), stage.core.port_space(child)), (State::Asked, Some(PortSpace::Udp)));
    stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    stage.refuses(child, Request::Establish, Why::Breaks);
    stage.refuses(child, Request::Accept { param: ConnParam::default(), private_data: &[] }, Why::NoQp);
    stage.does(child, Request::AttachQp);
    let soon = stage.within(SOON);
    stage.does_until(child, Request::Accept { param: ConnParam::default(), private_data: b"me" }, soon);
    assert_eq!(
        (stage.state(child), stage.core.poll_timeout()),
        (State::Answered, None),
        "there is nothing to wait for"
    );
    assert_eq!(stage.says(child, CmEvent::Established), Admission::Late);
    stage.refuses(child, accept(), Why::WrongState);
    stage.refuses(child, REJECT, Why::WrongState);
    stage.does(child, Request::DetachQp);
    stage.ends(&[child, listener], &[channel]);
}

#[test]
fn a_lookup_that_nobody_answers_or_that_is_turned_down_fails() {
    for (kind, status, errno) in [
        (CmEvent::Unreachable, -110, Errno::ETIMEDOUT),
        (CmEvent::Unreachable, 2, Errno::ENOENT),
        (CmEvent::AddrError, -22, Errno::EINVAL),
    ] {
        for synchronous in [false, true] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = routed(&mut stage, channel);
            if synchronous {
                stage.does(id, TO_SYNC);
            }
            stage.does(id, connect());
            assert_eq!(stage.says_status(id, kind, status), Admission::Known);
            if synchronous {
                assert_eq!(stage.core.sync_result(id), Some(Err(errno)));
            } else {
                assert_eq!(stage.sees(channel, id, cm(kind)).result(), Err(errno));
            }
            assert_eq!(stage.state(id), State::Failed);
            stage.ends(&[id], &[channel]);
        }
    }
}

#[test]
fn an_event_of_connections_is_a_fault() {
    for state in [State::Asking, State::Answered] {
        let kinds = [CmEvent::Rejected, CmEvent::ConnectResponse, CmEvent::Disconnected, CmEvent::TimewaitExit];
        for event in kinds.into_iter().chain([CmEvent::ConnectError]) {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, state);
            let fault = stage.core.handle_event(channel, raw(id, event, 0)).unwrap_err();
            assert_eq!(fault, Fault::Event { id, state, event });
            stage.core.check();
            stage.no_event(channel);
        }
    }
}

#[test]
fn private_data_is_limited_by_what_the_message_of_the_service_holds() {
    for (verb, connected, datagram) in
        [(Verb::Connect, 56, 180), (Verb::Accept, 196, 136), (Verb::Reject, 148, 136), (Verb::Bind, 0, 0)]
    {
        assert_eq!(private_data_max(verb, Service::Connected), connected);
        assert_eq!(private_data_max(verb, Service::Datagram), datagram);
    }
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let active = routed(&mut stage, channel);
    let [one, two] = [stage.in_state(channel, State::Asked), stage.in_state(channel, State::Asked)];
    let data = [7; 181];
    let reason = cmid_proto::RejectReason::Consumer;
    let too_long = |max: usize| Why::PrivateDataTooLong { len: max + 1, max };
    stage.refuses(active, Request::Connect { param: param(), private_data: &data }, too_long(180));
    stage.refuses(one, Request::Accept { param: param(), private_data: &data[..137] }, too_long(136));
    let refused = stage.refuses(two, Request::Reject { reason, private_data: &data[..137] }, too_long(136));
    assert_eq!(refused.errno(), Errno::EINVAL);
    stage.does(active, Request::Connect { param: param(), private_data: &data[..180] });
    stage.does(one, Request::Accept { param: param(), private_data: &data[..136] });
    stage.does(two, Request::Reject { reason, private_data: &data[..136] });
    assert_eq!(stage.state(two), State::Failed);
}

#[test]
fn a_lookup_ends_at_its_deadline_and_its_answer_is_late() {
    for synchronous in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = routed(&mut stage, channel);
        if synchronous {
            stage.does(id, TO_SYNC);
        }
        let soon = stage.within(SOON);
        stage.does_until(id, connect(), soon);
        stage.passes(SOON);
        if synchronous {
            assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
        } else {
            stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Connect));
        }
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Failed, None));
        assert_eq!(stage.says(id, CmEvent::Established), Admission::Late);
        assert_eq!(stage.says_status(id, CmEvent::AddrError, -1), Admission::Late);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_call_that_fails_leaves_a_lookup_to_be_tried_again_and_an_answer_lost() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let active = routed(&mut stage, channel);
    stage.asks(active, connect()).unwrap();
    let failure = stage.expect_call("connect", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!(failure.state, State::RouteResolved);
    stage.does(active, connect());
    assert_eq!(stage.state(active), State::Asking);
    let passive = stage.in_state(channel, State::Asked);
    stage.asks(passive, REJECT).unwrap();
    assert!(stage.expect_call("reject", Err(Errno::EINVAL)).unwrap().result.is_err());
    assert_eq!(stage.state(passive), State::Asked);
    stage.asks(passive, accept()).unwrap();
    stage.expect_call("migrate_id", OK);
    // The kernel has turned the peer down.
    let failure = stage.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!(failure.state, State::Failed);
}

#[test]
fn in_synchronous_mode_a_lookup_waits_and_its_answer_does_not() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (active, passive) = (routed(&mut stage, channel), stage.in_state(channel, State::Asked));
    for id in [active, passive] {
        stage.does(id, TO_SYNC);
    }
    stage.does(active, connect());
    assert_eq!(stage.core.sync_result(active), None);
    stage.refuses(active, Request::AttachQp, Why::Busy(Verb::Connect));
    stage.says(active, CmEvent::Established);
    assert_eq!(stage.core.sync_result(active), Some(Ok(())));
    stage.does(active, Request::AttachQp);
    stage.does(passive, accept());
    assert_eq!((stage.core.sync_result(passive), stage.state(passive)), (None, State::Answered));
    stage.refuses(passive, Request::AttachQp, Why::NumberSent);
}

#[test]
fn a_qp_may_be_put_on_the_id_before_during_and_after_a_lookup_and_before_the_answer_to_one() {
    for state in [State::Asking, State::Asked, State::Answered] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = if state == State::Answered {
            let id = stage.in_state(channel, State::Asking);
            stage.tells(id, CmEvent::Established);
            id
        } else {
            stage.in_state(channel, state)
        };
        assert_eq!(stage.state(id), state);
        stage.does(id, Request::AttachQp);
        stage.refuses(id, Request::AttachQp, Why::HasQp);
        stage.does(id, Request::DetachQp);
        stage.refuses(id, Request::DetachQp, Why::NoQp);
    }
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id_for(PortSpace::Udp, Some(channel));
    stage.refuses(id, Request::AttachQp, Why::NoDevice);
    stage.does(id, BIND);
    stage.does(id, Request::AttachQp);
    stage.ends(&[id], &[channel]);
}

/// The answer to a lookup carries the number of the QP that the peer is to send to.
#[test]
fn a_qp_comes_too_late_for_a_lookup_that_was_accepted() {
    for with_qp in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Asked);
        if with_qp {
            stage.does(id, Request::AttachQp);
        }
        stage.does(id, accept());
        assert_eq!(stage.state(id), State::Answered);
        if with_qp {
            stage.refuses(id, Request::AttachQp, Why::HasQp);
            stage.does(id, Request::DetachQp);
        }
        assert_eq!(stage.refuses(id, Request::AttachQp, Why::NumberSent).errno(), cmid_proto::Errno::EINVAL);
        // It goes along to another channel, and to another core.
        stage.does(id, TO_SYNC);
        let (released, _) = stage.core.release(id).unwrap();
        let (id, _) = stage.core.adopt(released).unwrap();
        stage.refuses(id, Request::AttachQp, Why::NumberSent);
        let others: Vec<_> = stage.core.id_keys().collect();
        stage.ends(&others, &[channel]);
    }
}

#[test]
fn a_listener_that_goes_takes_its_undelivered_lookups_along() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.id_for(PortSpace::Ipoib, Some(channel));
    stage.does(listener, crate::fixture::LISTEN);
    let (seen, unseen) = (stage.says_request(listener), stage.says_request(listener));
    stage.sees(channel, seen, cm(CmEvent::ConnectRequest));
    stage.does(listener, Request::Destroy);
    assert_eq!((stage.state(seen), stage.core.state(unseen)), (State::Asked, None));
    stage.does(seen, accept());
    stage.ends(&[seen], &[channel]);
}
