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
}

#[test]
fn an_answer_that_fails_is_the_last_one_and_the_id_can_go() {
    let confirms = [(Request::Establish, State::Responded), (REJECT, State::Responded)];
    let answers =
        [accept(), REJECT].map(|answer| [State::Requested, State::SidrReqReceived].map(|from| (answer, from)));
    for (answer, from) in confirms.into_iter().chain(answers.into_iter().flatten()) {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        let failure = if answer == accept() {
            fixture.makes(id, answer, "migrate_id");
            fixture.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err()
        } else {
            fixture.fails(id, answer, answer.request_kind().name(), Errno::EINVAL)
        };
        assert_eq!((failure.state, failure.errno), (State::Failed, Errno::EINVAL));
        for again in [Request::Establish, REJECT, accept()] {
            fixture.refuses(id, again, RefuseReason::WrongState);
        }
        assert_eq!(fixture.report(id, CmEvent::Rejected), Admission::Late, "it crossed with the answer");
        fixture.does(id, Request::Destroy);
    }
}

#[test]
fn a_notified_connection_may_be_rejected_yet() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Accepting);
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
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        fixture.report_and_take(id, CmEvent::Disconnected);
        assert_eq!(fixture.state(id), State::PeerClosed);
        for late in [CmEvent::ConnectResponse, CmEvent::Established, CmEvent::Disconnected, CmEvent::Rejected] {
            assert_eq!(fixture.report(id, late), Admission::Late);
        }
        fixture.refuses(id, Request::Establish, RefuseReason::WrongState);
        fixture.does(id, Request::Disconnect);
        fixture.report_and_take(id, CmEvent::TimewaitExit);
    }
}

#[test]
fn with_a_qp_a_failed_answer_is_one_event_and_the_rest_is_late() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::RouteResolved);
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
}

#[test]
fn events_that_are_early_repeated_or_late_lead_where_the_kernel_is() {
    use CmEvent::{ConnectResponse, Disconnected, Established, Rejected, TimewaitExit, Unreachable};
    const LATE: Option<State> = None;
    let timed_out = Err(Errno::ETIMEDOUT);
    type Comes = (CmEvent, i32, Result<(), Errno>, Option<State>);
    let well = |kind, state| (kind, 0, Ok(()), state);
    let gone = |state| (Unreachable, -110, timed_out, Some(state));
    let refused = (Rejected, 28, Err(Errno::ECONNREFUSED), Some(State::Failed));
    let mut cases: Vec<(&str, State, Vec<Comes>)> = vec![
        (
            "a time wait ends before the peer is answered",
            State::PeerClosed,
            vec![well(TimewaitExit, Some(State::Closed))],
        ),
        (
            "the peer never answers a disconnect",
            State::Disconnecting,
            vec![(Disconnected, -110, timed_out, Some(State::TimeWait))],
        ),
        ("the client gave up before the accept", State::Accepting, vec![gone(State::Failed), well(Established, LATE)]),
        (
            "the disconnect overtakes the confirmation",
            State::Accepting,
            vec![well(Disconnected, Some(State::PeerClosed)), well(Established, LATE)],
        ),
        ("the peer goes between its answer and the confirmation", State::Responded, vec![refused]),
        (
            "an attempt that was given up is over whatever comes",
            State::Connecting,
            vec![
                gone(State::Failed),
                well(Established, LATE),
                well(ConnectResponse, LATE),
                well(Disconnected, LATE),
                well(TimewaitExit, LATE),
            ],
        ),
    ];
    // From the neighbour table.
    for state in State::ALL.into_iter().filter(|&state| state.index() >= State::AddrResolved.index()) {
        let has_peer = !matches!(state, State::Connecting | State::Requested | State::Accepting | State::Failed)
            && !matches!(state, State::SidrReqSent | State::SidrReqReceived | State::SidrResolved)
            && !matches!(state, State::Listening | State::Removed | State::Destroying);
        if has_peer {
            cases.push(("a changed link address is reported each time", state, vec![gone(state), gone(state)]));
        }
    }
    for (what, from, events) in cases {
        let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        for (kind, status, result, state) in events {
            let before = fixture.state(id);
            let admission = fixture.report_status(id, kind, status);
            assert_eq!(admission == Admission::Known, state.is_some(), "{what}, from {from}: {kind}");
            assert_eq!(fixture.state(id), state.unwrap_or(before), "{what}, from {from}: {kind}");
            if state.is_some() {
                assert_eq!(fixture.sees(channel, id, cm(kind)).result(), result, "{what}, from {from}: {kind}");
            }
        }
        fixture.does(id, Request::Destroy);
        fixture.no_event(channel);
    }
}
