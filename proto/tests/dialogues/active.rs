//! The life of an id that connects.

use cmid_proto::{Acks, Admission, Call, CmEvent, ConnParam, Errno, Request, State, Time, Why};

use crate::fixture::{BIND, OK, RESOLVE, Stage, addr, cm, connect, param};

#[test]
fn an_id_without_a_qp_connects_establishes_and_disconnects() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, RESOLVE).unwrap();
    let (token, call) = stage.takes_call("resolve_addr");
    assert_eq!(call, Call::ResolveAddr { id, src: None, dst: addr(2), timeout_ms: i32::MAX });
    assert!(stage.answers(token, OK).unwrap().result.is_ok());
    stage.tells(id, CmEvent::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.tells(id, CmEvent::RouteResolved);

    stage.asks(id, connect()).unwrap();
    let (token, call) = stage.takes_call("connect");
    assert_eq!(call, Call::Connect { id, param: param() });
    assert_eq!(stage.core.call_data(token), b"hello");
    stage.answers(token, OK);
    assert_eq!(stage.core.call_data(token), b"", "the device has it");
    stage.tells(id, CmEvent::ConnectResponse);
    assert_eq!(stage.state(id), State::Responded);
    stage.does(id, Request::Establish);
    assert_eq!(stage.state(id), State::Connected);

    stage.does(id, Request::Disconnect);
    stage.tells(id, CmEvent::Disconnected);
    stage.tells(id, CmEvent::TimewaitExit);
    assert_eq!(stage.state(id), State::Closed);
    stage.ends(&[id], &[channel]);
}

#[test]
fn an_id_with_a_qp_is_established_by_the_library_and_answers_the_peers_disconnect() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::RouteResolved);
    stage.does(id, Request::AttachQp);
    stage.does(id, Request::Connect { param: ConnParam::default(), private_data: &[] });
    stage.tells(id, CmEvent::Established);
    assert_eq!(stage.state(id), State::Connected);
    stage.tells(id, CmEvent::Disconnected);
    stage.does(id, Request::Disconnect);
    stage.tells(id, CmEvent::TimewaitExit);
    stage.does(id, Request::DetachQp);
    stage.ends(&[id], &[channel]);
}

#[test]
fn what_went_wrong_on_the_way_can_be_tried_again() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.does(id, RESOLVE);
    assert_eq!(stage.says_status(id, CmEvent::AddrError, -110), Admission::Known);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrError)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(stage.state(id), State::Bound);
    stage.does(id, RESOLVE);
    stage.tells(id, CmEvent::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.tells(id, CmEvent::RouteError);
    assert_eq!(stage.state(id), State::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.tells(id, CmEvent::RouteResolved);
    stage.asks(id, connect()).unwrap();
    let failure = stage.expect_call("connect", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!((failure.errno, failure.state), (Errno::EINVAL, State::RouteResolved));
    stage.does(id, connect());
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_rejected_id_says_the_reason_and_can_only_be_destroyed() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connecting);
    stage.says_status(id, CmEvent::Rejected, 28);
    let event = stage.sees(channel, id, cm(CmEvent::Rejected));
    assert_eq!((event.status, event.result()), (28, Err(Errno::ECONNREFUSED)));
    assert_eq!(stage.state(id), State::Failed);
    assert!(stage.asks(id, connect()).is_err());
    stage.ends(&[id], &[channel]);
}

#[test]
fn the_guards_refuse_what_the_table_leaves_open() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::RouteResolved);
    let before = stage.core.clone();
    for (request, why) in [
        (Request::Connect { param: ConnParam::default(), private_data: &[] }, Why::NoQp),
        (Request::Connect { param: param(), private_data: &[0; 57] }, Why::PrivateDataTooLong { len: 57, max: 56 }),
        (Request::DetachQp, Why::NoQp),
    ] {
        let refused = stage.asks(id, request).unwrap_err();
        assert_eq!(refused.to_string(), format!("{} on {id} while route resolved: {why}", request.verb()));
        assert_eq!(stage.core, before);
    }
    stage.does(id, Request::AttachQp);
    let twice = stage.asks(id, Request::AttachQp).unwrap_err();
    assert!(twice.to_string().ends_with("the id has a QP"));
    let (now, idle) = (stage.now, stage.id(Some(channel)));
    let refused = stage.asks_until(idle, BIND, now).unwrap_err();
    assert!(refused.to_string().ends_with("the deadline has passed"), "{refused}");
    let dst = "[fe80::1]:1".parse().unwrap();
    assert!(stage.asks(idle, Request::ResolveAddr { src: Some(addr(1)), dst }).is_err());
    stage.ends(&[id, idle], &[channel]);
}

#[test]
fn one_call_at_a_time_is_made_for_an_id() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, BIND).unwrap();
    let refused = stage.asks(id, RESOLVE).unwrap_err();
    assert_eq!(refused.to_string(), format!("resolve_addr on {id} while bound: bind_addr is under way"));
    assert_eq!(refused.errno(), Errno::EBUSY);
    stage.expect_call("bind_addr", OK);
    stage.no_call();
    stage.ends(&[id], &[channel]);
}

#[test]
fn two_ids_on_one_channel_keep_the_order_of_the_device() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let (one, two) = (stage.id(Some(channel)), stage.id(Some(channel)));
    stage.does(one, RESOLVE);
    stage.does(two, RESOLVE);
    stage.says(two, CmEvent::AddrResolved);
    stage.says(one, CmEvent::AddrResolved);
    stage.says(two, CmEvent::AddrChange);
    stage.sees(channel, two, cm(CmEvent::AddrResolved));
    stage.does(two, Request::ResolveRoute);
    stage.sees(channel, one, cm(CmEvent::AddrResolved));
    stage.says(two, CmEvent::RouteResolved);
    stage.sees(channel, two, cm(CmEvent::AddrChange));
    // What waits of an id that is destroyed vanishes; the other's stays.
    stage.says(one, CmEvent::AddrChange);
    stage.does(two, Request::Destroy);
    stage.sees(channel, one, cm(CmEvent::AddrChange));
    stage.no_event(channel);
    assert_eq!(stage.core.counters().discarded, 1);
    stage.ends(&[one], &[channel]);
}

#[test]
fn a_removed_device_ends_everything_but_the_destroy() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connecting);
    stage.tells(id, CmEvent::DeviceRemoval);
    assert_eq!(stage.says(id, CmEvent::Established), Admission::Late);
    assert!(stage.asks(id, Request::Disconnect).is_err());
    assert_eq!(stage.core.poll_timeout(), None);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_bind_to_the_wildcard_gives_no_device() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.does_until(id, Request::Bind { addr: "0.0.0.0:0".parse().unwrap() }, Time::NEVER);
    assert!(stage.asks(id, Request::AttachQp).unwrap_err().to_string().ends_with("not bound to a device"));
    stage.does(id, RESOLVE);
    stage.tells(id, CmEvent::AddrResolved);
    stage.does(id, Request::AttachQp);
    stage.ends(&[id], &[channel]);
}

/// The peer learns the number with the request, its answer or the confirmation.
#[test]
fn a_qp_comes_too_late_once_the_peer_has_a_number() {
    for state in [State::Connecting, State::Responded, State::Accepting, State::Connected] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, state);
        assert_eq!(stage.refuses(id, Request::AttachQp, Why::NumberSent).errno(), Errno::EINVAL);
    }
    // A request that the device has refused was not sent.
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::RouteResolved);
    stage.asks(id, connect()).unwrap();
    stage.expect_call("connect", Err(Errno::ENOMEM));
    stage.does(id, Request::AttachQp);
    stage.ends(&[id], &[channel]);
}
