//! Races of the protocol: events that are late, repeated, early or missing.

use cmid_proto::{Acks, Admission, CmEvent, Errno, RefuseReason, Request, State};

use crate::fixture::{CoreFixture, REJECT, accept, cm, connect};

#[test]
fn a_crossing_disconnect_is_over_for_both_and_has_a_time_wait_only_if_one_answers() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let sides = [fixture.in_state(channel, State::Disconnecting), fixture.in_state(channel, State::Disconnecting)];
    for id in sides {
        fixture.report_and_take(id, CmEvent::Disconnected);
        assert_eq!(fixture.state(id), State::TimeWait);
    }
    // TIMEWAIT_EXIT may not arrive by itself; a second disconnect causes it.
    for id in sides {
        assert!(fixture.makes(id, Request::Disconnect, "disconnect").unwrap().result.is_ok());
        assert_eq!(fixture.state(id), State::TimeWait);
        fixture.report_and_take(id, CmEvent::TimewaitExit);
        assert_eq!(fixture.state(id), State::Closed);
        assert_eq!(fixture.report(id, CmEvent::TimewaitExit), Admission::Late, "twice");
    }
    fixture.ends(&sides, &[channel]);
}

#[test]
fn a_time_wait_may_end_before_the_peer_is_answered() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::PeerClosed);
    fixture.report_and_take(id, CmEvent::TimewaitExit);
    assert_eq!(fixture.state(id), State::Closed);
    fixture.does(id, Request::Disconnect);
    assert_eq!(fixture.state(id), State::Closed, "harmless");
    fixture.ends(&[id], &[channel]);
}

#[test]
fn a_disconnect_that_the_peer_never_answers_ends_with_its_status() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Disconnecting);
    fixture.report_status(id, CmEvent::Disconnected, -110);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::Disconnected)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.state(id), State::TimeWait);
    fixture.ends(&[id], &[channel]);
}

#[test]
fn an_answer_to_a_client_that_has_gone_fails_and_the_id_can_go() {
    for from in [State::Requested, State::SidrReqReceived] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = fixture.in_state(channel, from);
        let failure = fixture.fails(id, REJECT, "reject", Errno::EINVAL);
        assert_eq!((failure.state, failure.errno), (from, Errno::EINVAL));
        fixture.makes(id, accept(), "migrate_id");
        let failure = fixture.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
        assert_eq!(failure.state, State::Failed);
        fixture.does(id, Request::Destroy);
    }
}

#[test]
fn an_accept_that_comes_after_the_client_gave_up_ends_unreachable() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Accepting);
    fixture.report_status(id, CmEvent::Unreachable, -110);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::Unreachable)).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.state(id), State::Failed);
    assert_eq!(fixture.report(id, CmEvent::Established), Admission::Late);
}

#[test]
fn a_notified_connection_may_be_rejected_yet() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Accepting);
    fixture.does(id, Request::Notify);
    fixture.report_and_take(id, CmEvent::Established);
    fixture.report_status(id, CmEvent::Rejected, 28);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::Rejected)).status, 28);
    assert_eq!(fixture.state(id), State::Failed);
    fixture.does(id, Request::Disconnect);
}

#[test]
fn the_passive_side_may_disconnect_before_the_active_has_finished() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (active, passive) = (fixture.in_state(channel, State::Responded), fixture.in_state(channel, State::Accepting));
    fixture.does(passive, Request::Notify);
    fixture.report_and_take(passive, CmEvent::Established);
    fixture.does(passive, Request::Disconnect);
    // The DREQ is dropped until the active side has established, and is then repeated.
    fixture.does(active, Request::Establish);
    fixture.report_and_take(active, CmEvent::Disconnected);
    fixture.does(active, Request::Disconnect);
    for id in [passive, active] {
        if id == passive {
            fixture.report_and_take(id, CmEvent::Disconnected);
        }
        fixture.report_and_take(id, CmEvent::TimewaitExit);
        assert_eq!(fixture.state(id), State::Closed);
    }
}

#[test]
fn a_disconnect_may_precede_the_answer_of_the_peer() {
    for from in [State::Connecting, State::Responded] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = fixture.in_state(channel, from);
        fixture.report_and_take(id, CmEvent::Disconnected);
        assert_eq!(fixture.state(id), State::PeerClosed);
        for late in [CmEvent::ConnectResponse, CmEvent::Established, CmEvent::Disconnected, CmEvent::Rejected] {
            assert_eq!(fixture.report(id, late), Admission::Late);
        }
        fixture.refuses(id, Request::Establish, RefuseReason::WrongState);
        fixture.does(id, Request::Disconnect);
        fixture.report_and_take(id, CmEvent::TimewaitExit);
        fixture.ends(&[id], &[channel]);
    }
}

#[test]
fn with_a_qp_a_failed_answer_is_one_event_and_the_rest_is_late() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::RouteResolved);
    fixture.does(id, Request::AttachQp);
    fixture.does(id, connect());
    fixture.report_status(id, CmEvent::ConnectError, -1);
    assert_eq!(fixture.sees(channel, id, cm(CmEvent::ConnectError)).result(), Err(Errno::EPERM));
    for late in [CmEvent::Rejected, CmEvent::Disconnected, CmEvent::ConnectError, CmEvent::TimewaitExit] {
        assert_eq!(fixture.report(id, late), Admission::Late);
    }
    // UNREACHABLE from the neighbour table is delivered to a failed id too.
    fixture.report_and_take(id, CmEvent::Unreachable);
    assert_eq!(fixture.state(id), State::Failed);
    fixture.does(id, Request::DetachQp);
    fixture.ends(&[id], &[channel]);
}

#[test]
fn without_a_qp_the_peer_may_go_between_its_answer_and_the_confirmation() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Responded);
    fixture.report_status(id, CmEvent::Rejected, 28);
    fixture.sees(channel, id, cm(CmEvent::Rejected));
    assert_eq!(fixture.state(id), State::Failed);
    fixture.refuses(id, Request::Establish, RefuseReason::WrongState);
    fixture.ends(&[id], &[channel]);
}

#[test]
fn a_confirmation_that_the_device_refuses_may_be_tried_again() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Responded);
    let failure = fixture.fails(id, Request::Establish, "establish", Errno::EINVAL);
    assert_eq!(failure.state, State::Responded);
    fixture.does(id, Request::Establish);
    fixture.ends(&[id], &[channel]);
}

#[test]
fn a_changed_link_address_is_reported_each_time_and_ends_no_connection() {
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
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = fixture.in_state(channel, state);
        for _ in 0..2 {
            fixture.report_status(id, CmEvent::Unreachable, -110);
            fixture.sees(channel, id, cm(CmEvent::Unreachable));
            assert_eq!(fixture.state(id), state);
        }
        fixture.ends(&[id], &[channel]);
    }
}

#[test]
fn an_attempt_that_was_given_up_as_unreachable_is_over_whatever_comes() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Connecting);
    fixture.report_status(id, CmEvent::Unreachable, -110);
    fixture.sees(channel, id, cm(CmEvent::Unreachable));
    for late in [CmEvent::Established, CmEvent::ConnectResponse, CmEvent::Disconnected, CmEvent::TimewaitExit] {
        assert_eq!(fixture.report(id, late), Admission::Late);
    }
    assert_eq!(fixture.state(id), State::Failed);
    fixture.ends(&[id], &[channel]);
}

#[test]
fn a_destroyed_id_takes_its_unread_events_along_and_leaves_the_others_in_order() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let ids = [(); 3].map(|()| fixture.in_state(channel, State::Connected));
    for status in 0..3 {
        for id in ids {
            fixture.report_status(id, CmEvent::AddrChange, status);
        }
    }
    let read = fixture.expect_event(channel, ids[0], cm(CmEvent::AddrChange));
    fixture.does(ids[1], Request::Destroy);
    for (id, status) in [(ids[2], 0), (ids[0], 1), (ids[2], 1), (ids[0], 2), (ids[2], 2)] {
        assert_eq!(fixture.sees(channel, id, cm(CmEvent::AddrChange)).status, status);
    }
    fixture.no_event(channel);
    fixture.acks(read);
    assert_eq!(fixture.core.summary().counters.discarded, 3);
    fixture.ends(&ids, &[channel]);
}
