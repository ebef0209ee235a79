//! The life of a listener and of the ids of its requests.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Fault, RawEvent, Request, State, Target};

use crate::fixture::{CoreFixture, OK, accept, cm, raw, to};

#[test]
fn a_request_is_accepted_and_lives_until_its_peer_leaves() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let child = fixture.report_request(listener);
    let event = fixture.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    assert_eq!((event.listener, event.private_data.len()), (Some(listener), 56));
    assert_eq!(fixture.report(child, CmEvent::Rejected), Admission::Late, "no event is delivered before the accept");
    fixture.does(child, accept());
    fixture.report_and_take(child, CmEvent::Established);
    fixture.report_and_take(child, CmEvent::Disconnected);
    fixture.does(child, Request::Disconnect);
    fixture.report_and_take(child, CmEvent::TimewaitExit);
}

#[test]
fn a_destroyed_listener_takes_its_undelivered_requests_along_and_leaves_the_others() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (listener, seen) = fixture.requested(channel);
    let (first, second) = (fixture.report_request(listener), fixture.report_request(listener));
    fixture.submit(listener, Request::Destroy).unwrap();
    assert_eq!(fixture.takes_call("destroy_id").id(), Some(listener));
    assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
    fixture.no_event(channel);
    for child in [first, second] {
        assert_eq!(fixture.state(child), State::Destroying);
        assert_eq!(fixture.takes_call("destroy_id").id(), Some(child));
        assert_eq!(fixture.answers(OK), None);
        assert_eq!(fixture.core.state(child), None);
    }
    assert_eq!(fixture.next_child(), None);
    fixture.does(seen, accept());
}

#[test]
fn a_listener_with_an_unacked_request_waits_for_the_ack_with_its_destruction() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::Explicit, State::Listening);
    let child = fixture.report_request(listener);
    let event = fixture.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    assert_eq!((fixture.owed(listener), fixture.owed(child)), (1, 0), "it counts on the listener");
    fixture.does(listener, Request::Destroy);
    assert_eq!(fixture.state(listener), State::Destroying);
    // A request that arrives meanwhile is destroyed.
    let late = fixture.core.wants_event(channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(late, CmEvent::ConnectRequest, 0) };
    assert_eq!(fixture.report_on(channel, request), Admission::Late);
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
    fixture.does(child, Request::Destroy);
    fixture.acks(event);
    fixture.all_well();
    fixture.sees(channel, listener, EventKind::Destroyed);
}

#[test]
fn an_unread_request_that_cannot_be_destroyed_is_a_leak_and_is_forgotten() {
    let (mut fixture, _, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let child = fixture.report_request(listener);
    fixture.makes(listener, Request::Destroy, "destroy_id");
    assert_eq!(fixture.takes_call("destroy_id").id(), Some(child));
    let fault = fixture.reports(Err(Errno::EBADF)).unwrap_err();
    let target = Target::Id(child);
    assert_eq!(fault, Fault::Leak { call: "destroy_id", target, errno: Errno::EBADF });
    assert_eq!(fixture.core.summary().counters.faults, 1);
    assert_eq!(fixture.core.state(child), None);
    fixture.all_well();
    assert_eq!(fixture.core.ids().count(), 0);
    fixture.stops();
}

#[test]
fn a_child_goes_its_own_way_before_its_request_is_acked() {
    let (mut fixture, [channel, other], listener) = CoreFixture::with_id_on_two(Acks::Explicit, State::Listening);
    let child = fixture.report_request(listener);
    let event = fixture.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    fixture.does(child, to(other));
    fixture.does(child, accept());
    fixture.report_and_take(child, CmEvent::Established);
    assert_eq!(fixture.core.channel(child), Some(other));
    fixture.acks(event);
}
