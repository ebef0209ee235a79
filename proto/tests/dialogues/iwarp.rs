//! Ids on iWARP devices: the events and requests that differ there.

use std::time::Duration;

use cmid_proto::info::WaitsFor;
use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, Errno, EventKind, Fault, IdKey, PortSpace, RefuseReason, Request,
    RequestKind, State, Time, Transport,
};

use crate::fixture::{CoreFixture, LISTEN, SOON, TO_SYNC, accept, cm, connect, raw};

/// One id in this state, on an iWARP device.
fn alone(acks: Acks, state: State) -> (CoreFixture, ChannelKey, IdKey) {
    let (mut fixture, channel) = CoreFixture::on(acks);
    let id = on_iwarp(&mut fixture, channel, state);
    (fixture, channel, id)
}

/// An id in this state, on an iWARP device.
fn on_iwarp(fixture: &mut CoreFixture, channel: ChannelKey, state: State) -> IdKey {
    let id = fixture.in_state(channel, state);
    fixture.core.note_iwarp(id);
    fixture.core.check();
    id
}

#[test]
fn a_teardown_ends_with_the_disconnect_and_answers_nothing() {
    for synchronous in [false, true] {
        let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::Connected);
        if synchronous {
            fixture.does(id, TO_SYNC);
        }
        fixture.does(id, Request::Teardown);
        assert_eq!(fixture.state(id), State::Closing);
        assert_eq!(fixture.report(id, CmEvent::Disconnected), Admission::Known);
        fixture.no_call();
        assert_eq!(fixture.state(id), State::Closed);
        if synchronous {
            assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
        } else {
            fixture.sees(channel, id, cm(CmEvent::Disconnected));
        }
        fixture.refuses(id, Request::Teardown, RefuseReason::IsOver);
    }
}

#[test]
fn the_peers_disconnect_ends_the_connection() {
    for state in [State::Connected, State::Accepting, State::Connecting, State::Disconnecting] {
        let (mut fixture, _, id) = alone(Acks::Explicit, state);
        fixture.report_and_take(id, CmEvent::Disconnected);
        assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Closed, None), "from {state}");
        fixture.refuses(id, Request::Teardown, RefuseReason::IsOver);
        // The device returns 0, as for a peer that was first.
        fixture.does(id, Request::Disconnect);
        fixture.does(id, Request::Destroy);
    }
}

#[test]
fn a_transport_that_is_learned_after_the_end_ends_the_wait_for_an_answer() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
    fixture.report_and_take(id, CmEvent::Disconnected);
    assert_eq!(fixture.state(id), State::PeerClosed);
    fixture.core.note_iwarp(id);
    assert_eq!(
        (fixture.state(id), fixture.core.id_info(id).map(|it| it.transport)),
        (State::Closed, Some(Transport::Iwarp))
    );
}

#[test]
fn events_that_iwarp_never_reports_are_faults() {
    for (state, event) in [
        (State::Connecting, CmEvent::ConnectResponse),
        (State::RouteResolving, CmEvent::RouteError),
        (State::Closing, CmEvent::TimewaitExit),
        (State::Closed, CmEvent::TimewaitExit),
    ] {
        let (mut fixture, channel, id) = alone(Acks::OnDelivery, state);
        let fault = fixture.core.handle_event(channel, raw(id, event, 0));
        assert_eq!(fault, Err(Fault::Event { id, state, event }));
        assert_eq!(fixture.state(id), state);
        fixture.no_event(channel);
        fixture.stops();
    }
}

/// The kernel would block in rdma_destroy_id(3) until then.
#[test]
fn a_destroy_waits_for_the_answer_to_a_connect() {
    let answers = [
        CmEvent::Established,
        CmEvent::Rejected,
        CmEvent::Unreachable,
        CmEvent::ConnectError,
        CmEvent::Disconnected,
        CmEvent::DeviceRemoval,
    ];
    for answer in answers {
        let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::RouteResolved);
        fixture.does(id, connect());
        fixture.does(id, Request::Destroy);
        assert_eq!(fixture.state(id), State::Destroying, "{answer}");
        let waits: Vec<_> = fixture.core.waiting().collect();
        assert_eq!(waits, [(id, WaitsFor::Event(RequestKind::Connect))]);
        // Neither of these ends the connect.
        assert_eq!(fixture.report(id, CmEvent::AddrChange), Admission::Late);
        fixture.no_call();
        assert_eq!(fixture.report(id, answer), Admission::Late, "{answer}");
        fixture.all_well();
        assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Ok(()), "{answer}");
        assert_eq!(fixture.core.state(id), None, "{answer}");
    }
}

#[test]
fn a_destroy_after_a_destroy_now_that_failed_waits_for_no_answer() {
    let (mut fixture, _, id) = alone(Acks::OnDelivery, State::RouteResolved);
    fixture.does(id, connect());
    fixture.fails(id, Request::DestroyNow, "destroy_id", Errno::EIO);
    assert!(fixture.makes(id, Request::Destroy, "destroy_id").unwrap().result.is_ok());
}

/// On a channel that has failed no answer is read.
#[test]
fn a_destroy_on_a_failed_channel_does_not_wait_for_the_answer() {
    for (fails_first, owes) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut fixture, channel, id) = alone(Acks::Explicit, State::RouteResolved);
        fixture.does(id, connect());
        let owed = owes.then(|| {
            fixture.report(id, CmEvent::AddrChange);
            fixture.expect_event(channel, id, cm(CmEvent::AddrChange)).ack_token.unwrap()
        });
        let fail = |fixture: &mut CoreFixture| while fixture.core.handle_unreadable(channel) {};
        if fails_first {
            fail(&mut fixture);
            fixture.passes(Duration::ZERO);
            fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Connect));
        }
        fixture.does(id, Request::Destroy);
        if !fails_first {
            assert_eq!(fixture.core.poll_timeout(), None);
            fail(&mut fixture);
        }
        if let Some(ack_token) = owed {
            assert_eq!(fixture.core.poll_timeout(), None);
            fixture.core.ack(ack_token).unwrap();
        }
        fixture.passes(Duration::ZERO);
        assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
        fixture.does(id, Request::DestroyNow);
        assert_eq!(fixture.core.state(id), None);
    }
}

/// The deadline of a connect ends it for the application only.
#[test]
fn a_destroy_after_the_deadline_of_a_connect_waits_for_the_answer_too() {
    let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::RouteResolved);
    fixture.does_soon(id, connect());
    fixture.passes(SOON);
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Connect));
    let _later = fixture.does_soon(id, Request::Destroy);
    fixture.no_call();
    fixture.passes(SOON);
    assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    // The answer to a destroy that gave up ends nothing; the next destroy is made at once.
    assert_eq!(fixture.report(id, CmEvent::Rejected), Admission::Late);
    fixture.no_call();
}

/// The kernel would block in rdma_disconnect(3) until the answer comes.
#[test]
fn a_disconnect_after_the_deadline_of_a_connect_is_refused_until_the_answer() {
    let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::RouteResolved);
    fixture.does_soon(id, connect());
    fixture.passes(SOON);
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Connect));
    fixture.refuses(id, Request::Disconnect, RefuseReason::NotConnected);
    assert_eq!(fixture.report(id, CmEvent::Rejected), Admission::Late);
    fixture.does(id, Request::Disconnect);
}

/// The DISCONNECTED may be in the kernel already when the deadline passes.
#[test]
fn a_disconnect_after_its_deadline_ends_with_the_tcp_connection() {
    let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::Connected);
    fixture.does_soon(id, Request::Disconnect);
    fixture.passes(SOON);
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Disconnect));
    assert_eq!(fixture.state(id), State::TimeWait);
    assert_eq!(fixture.report(id, CmEvent::Disconnected), Admission::Known);
    assert_eq!(fixture.state(id), State::Closed);
    fixture.refuses(id, Request::Teardown, RefuseReason::IsOver);
}

#[test]
fn a_destroy_that_waits_for_an_answer_can_be_made_at_once() {
    let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::RouteResolved);
    fixture.does(id, connect());
    fixture.does(id, Request::Destroy);
    fixture.does(id, Request::DestroyNow);
    assert_eq!(fixture.core.state(id), None);
    fixture.no_event(channel);
}

#[test]
fn a_destroy_after_a_connect_that_failed_waits_for_nothing() {
    let (mut fixture, _, id) = alone(Acks::OnDelivery, State::RouteResolved);
    fixture.submit_until(id, connect(), Time::NEVER).unwrap();
    fixture.expect_call("connect", Err(Errno(111)));
    fixture.does(id, Request::Destroy);
    assert_eq!(fixture.core.state(id), None);
}

#[test]
fn a_changed_link_address_is_late() {
    let (mut fixture, channel, id) = alone(Acks::OnDelivery, State::Connected);
    assert_eq!(fixture.report_status(id, CmEvent::Unreachable, -110), Admission::Late);
    fixture.no_event(channel);
}

#[test]
fn a_connection_is_established_without_a_response() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let client = on_iwarp(&mut fixture, channel, State::Connecting);
    fixture.report_and_take(client, CmEvent::Established);
    let server = on_iwarp(&mut fixture, channel, State::Requested);
    fixture.does(server, accept());
    fixture.report_and_take(server, CmEvent::Established);
    assert_eq!((fixture.state(client), fixture.state(server)), (State::Connected, State::Connected));
}

#[test]
fn datagram_services_are_refused() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let service = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.core.note_iwarp(service);
    let refused = fixture.refuses(service, LISTEN, RefuseReason::NoDatagrams);
    assert_eq!(refused.errno(), Errno::EINVAL);
    let lookup = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.does(lookup, crate::fixture::RESOLVE);
    fixture.report_and_take(lookup, CmEvent::AddrResolved);
    fixture.does(lookup, Request::ResolveRoute);
    fixture.report_and_take(lookup, CmEvent::RouteResolved);
    fixture.core.note_iwarp(lookup);
    fixture.refuses(lookup, connect(), RefuseReason::NoDatagrams);
    fixture.refuses(lookup, Request::AttachQp, RefuseReason::NoDatagrams);
}

#[test]
fn a_disconnect_is_one_call() {
    let (mut fixture, _, id) = alone(Acks::OnDelivery, State::Connected);
    fixture.submit(id, Request::Disconnect).unwrap();
    let call = fixture.takes_call("disconnect");
    assert_eq!(call, Call::Disconnect { id });
    fixture.answers(Ok(()));
    fixture.report_and_take(id, CmEvent::Disconnected);
    assert_eq!(fixture.state(id), State::Closed);
    fixture.no_call();
}
