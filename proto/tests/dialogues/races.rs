//! The races of the protocol: what comes late, twice, early or not at all.

use cmid_proto::{Acks, Admission, CmEvent, Errno, Request, State, Why};

use crate::fixture::{LISTEN, OK, REJECT, Stage, accept, cm, connect};

#[test]
fn a_crossing_disconnect_is_over_for_both_and_has_a_time_wait_only_if_one_answers() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let sides = [stage.in_state(channel, State::Disconnecting), stage.in_state(channel, State::Disconnecting)];
    for id in sides {
        stage.tells(id, CmEvent::Disconnected);
        assert_eq!(stage.state(id), State::TimeWait);
    }
    // TIMEWAIT_EXIT may never come; a second disconnect brings it about.
    for id in sides {
        stage.asks(id, Request::Disconnect).unwrap();
        assert!(stage.expect_call("disconnect", OK).unwrap().result.is_ok());
        assert_eq!(stage.state(id), State::TimeWait);
        stage.tells(id, CmEvent::TimewaitExit);
        assert_eq!(stage.state(id), State::Closed);
        assert_eq!(stage.says(id, CmEvent::TimewaitExit), Admission::Late, "twice");
    }
    stage.ends(&sides, &[channel]);
}

#[test]
fn a_disconnect_may_turn_out_to_be_the_answer() {
    // The peer's DISCONNECTED is processed while this side's call is under way: one exchange, not two.
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Connected);
        stage.asks(id, Request::Disconnect).unwrap();
        let (token, _) = stage.takes_call("disconnect");
        stage.tells(id, CmEvent::Disconnected);
        assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()), "the event is its end");
        assert_eq!(stage.state(id), State::TimeWait);
        stage.tells(id, CmEvent::TimewaitExit);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_time_wait_may_end_before_the_peer_is_answered() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::PeerClosed);
    stage.tells(id, CmEvent::TimewaitExit);
    assert_eq!(stage.state(id), State::Closed);
    stage.does(id, Request::Disconnect);
    assert_eq!(stage.state(id), State::Closed, "harmless");
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_disconnect_that_the_peer_never_answers_says_so() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Disconnecting);
    stage.says_status(id, CmEvent::Disconnected, -110);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::Disconnected)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(stage.state(id), State::TimeWait);
    stage.ends(&[id], &[channel]);
}

#[test]
fn an_answer_to_a_client_that_has_gone_fails_and_the_id_can_go() {
    for from in [State::Requested, State::Asked] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, from);
        stage.asks(id, REJECT).unwrap();
        let failure = stage.expect_call("reject", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
        assert_eq!((failure.state, failure.errno), (from, Errno::EINVAL));
        stage.asks(id, accept()).unwrap();
        stage.expect_call("migrate_id", OK);
        let failure = stage.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
        assert_eq!(failure.state, State::Failed);
        stage.does(id, Request::Destroy);
    }
}

#[test]
fn an_accept_that_comes_after_the_client_gave_up_ends_unreachable() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Accepting);
    stage.says_status(id, CmEvent::Unreachable, -110);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::Unreachable)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(stage.state(id), State::Failed);
    assert_eq!(stage.says(id, CmEvent::Established), Admission::Late);
}

#[test]
fn a_notified_connection_may_be_rejected_yet() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Accepting);
    stage.does(id, Request::Notify);
    stage.tells(id, CmEvent::Established);
    stage.says_status(id, CmEvent::Rejected, 28);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::Rejected)).status, 28);
    assert_eq!(stage.state(id), State::Failed);
    stage.does(id, Request::Disconnect);
}

#[test]
fn the_passive_side_may_disconnect_before_the_active_has_finished() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (active, passive) = (stage.in_state(channel, State::Responded), stage.in_state(channel, State::Accepting));
    stage.does(passive, Request::Notify);
    stage.tells(passive, CmEvent::Established);
    stage.does(passive, Request::Disconnect);
    // The request to disconnect is dropped until the active side has established, and comes again then.
    stage.does(active, Request::Establish);
    stage.tells(active, CmEvent::Disconnected);
    stage.does(active, Request::Disconnect);
    for id in [passive, active] {
        if id == passive {
            stage.tells(id, CmEvent::Disconnected);
        }
        stage.tells(id, CmEvent::TimewaitExit);
        assert_eq!(stage.state(id), State::Closed);
    }
}

#[test]
fn a_disconnect_may_precede_the_answer_of_the_peer() {
    for from in [State::Connecting, State::Responded] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, from);
        stage.tells(id, CmEvent::Disconnected);
        assert_eq!(stage.state(id), State::PeerClosed);
        for late in [CmEvent::ConnectResponse, CmEvent::Established, CmEvent::Disconnected, CmEvent::Rejected] {
            assert_eq!(stage.says(id, late), Admission::Late);
        }
        stage.refuses(id, Request::Establish, Why::WrongState);
        stage.does(id, Request::Disconnect);
        stage.tells(id, CmEvent::TimewaitExit);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn with_a_qp_a_failed_answer_is_one_event_and_the_rest_is_late() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::RouteResolved);
    stage.does(id, Request::AttachQp);
    stage.does(id, connect());
    stage.says_status(id, CmEvent::ConnectError, -1);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::ConnectError)).result(), Err(Errno::EPERM));
    for late in [CmEvent::Rejected, CmEvent::Disconnected, CmEvent::ConnectError, CmEvent::TimewaitExit] {
        assert_eq!(stage.says(id, late), Admission::Late);
    }
    // What the neighbour table has to say is told to whoever is there.
    stage.tells(id, CmEvent::Unreachable);
    assert_eq!(stage.state(id), State::Failed);
    stage.does(id, Request::DetachQp);
    stage.ends(&[id], &[channel]);
}

#[test]
fn without_a_qp_the_peer_may_go_between_its_answer_and_the_confirmation() {
    for confirming in [None, Some(OK), Some(Err(Errno::EINVAL))] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Responded);
        let token = confirming.map(|_| {
            stage.asks(id, Request::Establish).unwrap();
            stage.takes_call("establish").0
        });
        stage.says_status(id, CmEvent::Rejected, 28);
        if let (Some(token), Some(outcome)) = (token, confirming) {
            let ended = stage.answers(token, outcome).unwrap();
            assert_eq!(
                ended.result.map_err(|failure| (failure.state, failure.errno)),
                match outcome {
                    Ok(()) => Ok(()),
                    Err(errno) => Err((State::Failed, errno)),
                }
            );
        }
        stage.sees(channel, id, cm(CmEvent::Rejected));
        assert_eq!(stage.state(id), State::Failed);
        stage.refuses(id, Request::Establish, Why::WrongState);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_confirmation_that_the_device_refuses_may_be_tried_again() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Responded);
    stage.asks(id, Request::Establish).unwrap();
    let failure = stage.expect_call("establish", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!(failure.state, State::Responded);
    stage.does(id, Request::Establish);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_changed_link_address_is_told_each_time_and_ends_no_connection() {
    for state in [
        State::AddrResolved,
        State::RouteResolving,
        State::RouteResolved,
        State::Responded,
        State::Connected,
        State::Disconnecting,
        State::PeerClosed,
        State::TimeWait,
        State::Closed,
    ] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, state);
        for _ in 0..2 {
            stage.says_status(id, CmEvent::Unreachable, -110);
            stage.sees(channel, id, cm(CmEvent::Unreachable));
            assert_eq!(stage.state(id), state);
        }
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn an_attempt_that_was_given_up_as_unreachable_is_over_whatever_comes() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connecting);
    stage.says_status(id, CmEvent::Unreachable, -110);
    stage.sees(channel, id, cm(CmEvent::Unreachable));
    for late in [CmEvent::Established, CmEvent::ConnectResponse, CmEvent::Disconnected, CmEvent::TimewaitExit] {
        assert_eq!(stage.says(id, late), Admission::Late);
    }
    assert_eq!(stage.state(id), State::Failed);
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_destroyed_id_takes_its_unread_events_along_and_leaves_the_others_in_order() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let ids = [(); 3].map(|()| stage.in_state(channel, State::Connected));
    for status in 0..3 {
        for id in ids {
            stage.says_status(id, CmEvent::AddrChange, status);
        }
    }
    let read = stage.expect_event(channel, ids[0], cm(CmEvent::AddrChange));
    stage.does(ids[1], Request::Destroy);
    for (id, status) in [(ids[2], 0), (ids[0], 1), (ids[2], 1), (ids[0], 2), (ids[2], 2)] {
        assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrChange)).status, status);
    }
    stage.no_event(channel);
    stage.acks(read);
    assert_eq!(stage.core.counters().discarded, 3);
    stage.ends(&ids, &[channel]);
}

#[test]
fn requests_that_were_read_outlive_their_listener() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.id(Some(channel));
    stage.does(listener, LISTEN);
    let (one, two) = (stage.says_request(listener), stage.says_request(listener));
    stage.sees(channel, one, cm(CmEvent::ConnectRequest));
    stage.asks(one, accept()).unwrap();
    stage.asks(listener, Request::Destroy).unwrap();
    stage.all_well();
    assert_eq!(stage.core.state(two), None);
    stage.tells(one, CmEvent::Established);
    stage.ends(&[one], &[channel]);
}
