//! The life of a listener and of the ids that its requests bring.

use cmid_proto::{Acks, Admission, CmEvent, Errno, RawEvent, Request, State};

use crate::fixture::{LISTEN, OK, REJECT, Stage, accept, cm, raw, to};

#[test]
fn a_request_is_accepted_and_lives_until_its_peer_leaves() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(channel, State::Listening);
    let child = stage.says_request(listener);
    let event = stage.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    assert_eq!((event.listener, event.private_data.len()), (Some(listener), 56));
    assert_eq!(stage.says(child, CmEvent::Rejected), Admission::Late, "nothing is told before the accept");
    stage.does(child, accept());
    stage.tells(child, CmEvent::Established);
    stage.tells(child, CmEvent::Disconnected);
    stage.does(child, Request::Disconnect);
    stage.tells(child, CmEvent::TimewaitExit);
    stage.ends(&[child, listener], &[channel]);
}

#[test]
fn a_request_is_turned_down() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (listener, child) = stage.requested(channel);
    stage.asks(child, REJECT).unwrap();
    let (token, _) = stage.takes_call("reject");
    assert_eq!(stage.core.call_data(token), b"no");
    stage.answers(token, OK);
    assert_eq!(stage.state(child), State::Failed);
    stage.ends(&[child, listener], &[channel]);
}

#[test]
fn an_accept_that_fails_has_rejected_the_peer() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (listener, child) = stage.requested(channel);
    stage.asks(child, accept()).unwrap();
    stage.expect_call("migrate_id", OK);
    let failure = stage.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!(failure.state, State::Failed);
    stage.ends(&[child, listener], &[channel]);
}

#[test]
fn the_disconnect_may_overtake_the_confirmation() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let child = stage.in_state(channel, State::Accepting);
    stage.tells(child, CmEvent::Disconnected);
    assert_eq!(stage.says(child, CmEvent::Established), Admission::Late);
    assert_eq!(stage.state(child), State::PeerClosed);
}

#[test]
fn a_destroyed_listener_takes_its_undelivered_requests_along_and_leaves_the_others() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (listener, seen) = stage.requested(channel);
    let (first, second) = (stage.says_request(listener), stage.says_request(listener));
    stage.asks(listener, Request::Destroy).unwrap();
    stage.no_event(channel);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    assert_eq!((stage.core.state(first), stage.core.state(second)), (None, None));
    let ended = stage.expect_call("destroy_id", OK).unwrap();
    assert_eq!((ended.about, ended.result), (cmid_proto::About::Id(listener), Ok(())));
    stage.does(seen, accept());
    stage.ends(&[seen], &[channel]);
}

#[test]
fn a_listener_with_an_unacked_request_waits_for_the_ack_with_its_destruction() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let listener = stage.in_state(channel, State::Listening);
    let child = stage.says_request(listener);
    let event = stage.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    assert_eq!((stage.core.owed(listener), stage.core.owed(child)), (1, 0), "it counts on the listener");
    stage.does(listener, Request::Destroy);
    assert_eq!(stage.state(listener), State::Destroying);
    // A request that comes meanwhile is nobody's.
    let late = stage.core.wants_event(channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(late, CmEvent::ConnectRequest, 0) };
    assert_eq!(stage.says_on(channel, request), Admission::Late);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    stage.does(child, Request::Destroy);
    stage.acks(event);
    stage.all_well();
    stage.sees(channel, listener, cmid_proto::EventKind::Destroyed);
    stage.ends(&[], &[channel]);
}

#[test]
fn a_request_that_nobody_saw_and_cannot_be_destroyed_is_a_leak_and_is_forgotten() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(channel, State::Listening);
    let child = stage.says_request(listener);
    stage.asks(listener, Request::Destroy).unwrap();
    let (token, _) = stage.takes_call("destroy_id");
    let fault = stage.core.handle_outcome(token, Err(Errno::EBADF)).unwrap_err();
    assert_eq!(fault, cmid_proto::Fault::Leak { call: "destroy_id", errno: Errno::EBADF });
    stage.core.check();
    assert_eq!(stage.core.state(child), None);
    stage.all_well();
    assert_eq!(stage.core.ids(), 0);
}

#[test]
fn a_request_that_precedes_the_failure_of_the_listen_can_be_answered() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Bound);
    stage.asks(id, LISTEN).unwrap();
    stage.expect_call("create_event_channel", OK);
    stage.expect_call("migrate_id", OK);
    let (token, _) = stage.takes_call("listen");
    let child = stage.says_request(id);
    stage.answers(token, Err(Errno::EADDRINUSE));
    assert_eq!(stage.state(id), State::Bound);
    stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    stage.does(child, REJECT);
    stage.ends(&[id, child], &[channel]);
}

#[test]
fn a_child_goes_its_own_way_before_its_request_is_acked() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let other = stage.channel(Acks::Explicit);
    let listener = stage.in_state(channel, State::Listening);
    let child = stage.says_request(listener);
    let event = stage.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    stage.does(child, to(other));
    stage.does(child, accept());
    stage.tells(child, CmEvent::Established);
    assert_eq!(stage.core.home(child), Some(other));
    stage.acks(event);
    stage.ends(&[child, listener], &[channel, other]);
}
