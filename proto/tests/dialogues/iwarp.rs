//! Ids on iWARP devices: the events and requests that differ there.

use cmid_proto::{Acks, Admission, Call, CmEvent, Errno, Fault, PortSpace, RefuseReason, Request, State, Transport};

use crate::fixture::{CoreFixture, LISTEN, TO_SYNC, accept, cm, connect, raw};

/// An id in this state, on an iWARP device.
fn on_iwarp(fixture: &mut CoreFixture, channel: cmid_proto::ChannelKey, state: State) -> cmid_proto::IdKey {
    let id = fixture.in_state(channel, state);
    fixture.core.note_iwarp(id);
    fixture.core.check();
    id
}

#[test]
fn a_teardown_ends_with_the_disconnect_and_answers_nothing() {
    for synchronous in [false, true] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = on_iwarp(&mut fixture, channel, State::Connected);
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
        fixture.ends(&[id], &[channel]);
    }
}

#[test]
fn the_peers_disconnect_ends_the_connection() {
    for state in [State::Connected, State::Accepting, State::Connecting, State::Disconnecting] {
        let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
        let id = on_iwarp(&mut fixture, channel, state);
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
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = fixture.in_state(channel, State::Connected);
    fixture.report_and_take(id, CmEvent::Disconnected);
    assert_eq!(fixture.state(id), State::PeerClosed);
    fixture.core.note_iwarp(id);
    assert_eq!((fixture.state(id), fixture.core.transport(id)), (State::Closed, Some(Transport::Iwarp)));
    fixture.ends(&[id], &[channel]);
}

#[test]
fn events_that_iwarp_never_reports_are_faults() {
    for (state, event) in [
        (State::Connecting, CmEvent::ConnectResponse),
        (State::RouteResolving, CmEvent::RouteError),
        (State::Closing, CmEvent::TimewaitExit),
        (State::Closed, CmEvent::TimewaitExit),
    ] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = on_iwarp(&mut fixture, channel, state);
        let fault = fixture.core.handle_event(channel, raw(id, event, 0));
        assert_eq!(fault, Err(Fault::Event { id, state, event }));
        assert_eq!(fixture.state(id), state);
        fixture.no_event(channel);
        fixture.does(id, Request::Destroy);
    }
}

#[test]
fn a_changed_link_address_is_late() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = on_iwarp(&mut fixture, channel, State::Connected);
    assert_eq!(fixture.report_status(id, CmEvent::Unreachable, -110), Admission::Late);
    fixture.no_event(channel);
    fixture.ends(&[id], &[channel]);
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
    fixture.ends(&[service, lookup], &[channel]);
}

#[test]
fn a_disconnect_is_one_call() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = on_iwarp(&mut fixture, channel, State::Connected);
    fixture.submit(id, Request::Disconnect).unwrap();
    let (token, call) = fixture.takes_call("disconnect");
    assert_eq!(call, Call::Disconnect { id });
    fixture.answers(token, Ok(()));
    fixture.report_and_take(id, CmEvent::Disconnected);
    assert_eq!(fixture.state(id), State::Closed);
    fixture.no_call();
    fixture.ends(&[id], &[channel]);
}
