//! The id of a request is on its listener's channel at the device until it is accepted or migrated.

use std::time::Duration;

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, Core, Errno, EventKind, IdKey, PortSpace, RawEvent, RefuseReason,
    Refused, Request, RequestKind, State,
};

use crate::fixture::{CoreFixture, LISTEN, OK, REJECT, SOON, TO_SYNC, accept, cm, raw, to};

/// A listener, its channel at the device, and the id of a request that was taken and acked. No channel is to be read.
fn requested(fixture: &mut CoreFixture, space: PortSpace, here: ChannelKey) -> (IdKey, ChannelKey, IdKey) {
    let (listener, child) = fixture.requested_for(space, here);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    while fixture.core.poll_readable().is_some() {}
    assert_eq!(fixture.channels_of(child), (Some(here), Some(device_channel)));
    (listener, device_channel, child)
}

const SPACES: [(PortSpace, State, State); 2] = [
    (PortSpace::Tcp, State::Requested, State::Accepting),
    (PortSpace::Udp, State::SidrReqReceived, State::SidrResolved),
];

#[test]
fn an_accept_migrates_the_id_of_the_request_and_then_accepts_and_nothing_is_read() {
    for (space, before, accepted) in SPACES {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let (_, device_channel, child) = requested(&mut fixture, space, here);
        let soon = fixture.within(SOON);
        fixture.submit_until(child, accept(), soon).unwrap();
        let call = fixture.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: device_channel, to: here });
        assert_eq!(fixture.call_data(), b"");
        assert_eq!(fixture.answers(OK), None, "the request goes on");
        let call = fixture.takes_call("accept");
        let Request::Accept { param, private_data } = accept() else { panic!("no accept") };
        assert_eq!((call, fixture.call_data().as_slice()), (Call::Accept { id: child, param }, private_data));
        assert_eq!((fixture.state(child), fixture.core.poll_timeout()), (before, None), "until the outcome");
        assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
        assert_eq!((fixture.state(child), fixture.core.device_channel(child)), (accepted, Some(here)));
        assert_eq!(fixture.core.poll_readable(), None);
        fixture.no_call();
        let waits = space == PortSpace::Tcp;
        fixture.refuses(child, REJECT, if waits { RefuseReason::Stalls } else { RefuseReason::WrongState });
        fixture.refuses(child, Request::DetachQp, if waits { RefuseReason::WrongState } else { RefuseReason::NoQp });
        assert_eq!(fixture.core.poll_timeout(), waits.then_some((soon, child)));
        if waits {
            fixture.report_and_take(child, CmEvent::Established);
        }
    }
}

#[test]
fn the_id_of_a_request_that_is_rejected_or_destroyed_is_not_migrated() {
    for (space, ..) in SPACES {
        let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
        let (listener, _, child) = requested(&mut fixture, space, here);
        fixture.makes(child, REJECT, "reject");
        fixture.no_call();
        fixture.makes(child, Request::Destroy, "destroy_id");
        let other = fixture.report_request(listener);
        fixture.makes(other, Request::Destroy, "destroy_id");
        fixture.no_call();
    }
}

#[test]
fn the_id_of_a_request_that_is_migrated_leaves_its_listeners_channel_and_nothing_is_read() {
    for (space, ..) in SPACES {
        for other in [Acks::Explicit, Acks::OnDelivery] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let there = fixture.channel(other);
            let (_, device_channel, child) = requested(&mut fixture, space, here);
            for target in [here, there] {
                let mut fixture = fixture.clone();
                fixture.submit(child, to(target)).unwrap();
                let call = fixture.takes_call("migrate_id");
                assert_eq!(call, Call::Migrate { id: child, from: device_channel, to: target });
                assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
                assert_eq!(fixture.channels_of(child), (Some(target), Some(target)));
                assert_eq!(fixture.core.poll_readable(), None);
                fixture.makes(child, accept(), "accept");
                assert_eq!(fixture.core.poll_readable(), None);
            }
            fixture.makes(child, TO_SYNC, "create_event_channel");
            fixture.expect_call("migrate_id", OK);
            assert!(fixture.is_sync(child));
            assert_eq!(fixture.core.poll_readable(), None);
            fixture.makes(child, accept(), "accept");
        }
    }
}

/// An accepted id may have undelivered events when it is migrated.
#[test]
fn an_accepted_id_that_is_migrated_has_its_new_channel_read() {
    let (mut fixture, here, there) = CoreFixture::on_two(Acks::OnDelivery);
    let (_, _, child) = requested(&mut fixture, PortSpace::Tcp, here);
    fixture.does(child, accept());
    fixture.does(child, to(there));
    assert_eq!(fixture.core.poll_readable(), Some(there));
}

#[test]
fn an_accept_whose_migration_fails_leaves_the_request_to_be_accepted_again() {
    for (space, before, accepted) in SPACES {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let (_, device_channel, child) = requested(&mut fixture, space, here);
        let soon = fixture.within(SOON);
        fixture.submit_until(child, accept(), soon).unwrap();
        let failure = fixture.expect_call("migrate_id", Err(Errno::ENOMEM)).unwrap().result.unwrap_err();
        assert_eq!((failure.call, failure.state, failure.errno), ("migrate_id", before, Errno::ENOMEM));
        assert_eq!((fixture.state(child), fixture.core.device_channel(child)), (before, Some(device_channel)));
        assert_eq!((fixture.core.poll_timeout(), fixture.next_call()), (None, None));
        fixture.does(child, accept());
        assert_eq!((fixture.state(child), fixture.core.device_channel(child)), (accepted, Some(here)));
    }
}

/// Its listener has moved meanwhile: it is moved to where its request was delivered.
#[test]
fn an_accept_whose_migration_fails_moves_the_id_to_where_its_listener_was_by_then() {
    let (mut fixture, [_here, there], listener) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    let child = fixture.report_request(listener);
    fixture.does(listener, to(there));
    fixture.sees(there, child, cm(CmEvent::ConnectRequest));
    fixture.fails(child, accept(), "migrate_id", Errno::ENOMEM);
    fixture.submit(child, accept()).unwrap();
    let call = fixture.takes_call("migrate_id");
    assert_eq!(call, Call::Migrate { id: child, from: device_channel, to: there });
    fixture.all_well();
    assert_eq!(fixture.channels_of(child), (Some(there), Some(there)));
}

/// A device that reports a request on a channel that is not its listener's.
#[test]
fn an_accept_does_not_move_an_id_to_the_channel_of_a_listener() {
    let (mut fixture, elsewhere) = CoreFixture::on(Acks::OnDelivery);
    let listener = fixture.id(None);
    fixture.does(listener, LISTEN);
    let child = fixture.core.wants_event(elsewhere).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    fixture.report_on(elsewhere, request);
    fixture.refuses(child, accept(), RefuseReason::OnListenersChannel);
}

/// The kernel reports no event of an id before its accept; a device may.
#[test]
fn an_event_before_an_accept_is_delivered_where_the_id_is_accepted() {
    for (space, before, accepted) in SPACES {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let (_, device_channel, child) = requested(&mut fixture, space, here);
        assert_eq!(fixture.report_on(device_channel, raw(child, CmEvent::Established, 0)), Admission::Late);
        assert_eq!(fixture.report_on(device_channel, raw(child, CmEvent::AddrChange, 0)), Admission::Known);
        assert_eq!(fixture.state(child), before);
        let mut gone = fixture.clone();
        fixture.makes(child, accept(), "migrate_id");
        fixture.expect_call("accept", OK);
        assert_eq!(fixture.state(child), accepted);
        fixture.sees(here, child, cm(CmEvent::AddrChange));

        assert_eq!(gone.report_on(device_channel, raw(child, CmEvent::DeviceRemoval, 0)), Admission::Known);
        assert_eq!(gone.refuses(child, accept(), RefuseReason::DeviceGone).errno(), Errno::ENXIO);
        gone.sees(here, child, cm(CmEvent::AddrChange));
        gone.sees(here, child, cm(CmEvent::DeviceRemoval));
    }
}

/// The ack of a CONNECT_REQUEST counts for the listener. An unacked event of the id itself makes the core refuse the
/// accept.
#[test]
fn an_accept_does_not_wait_for_the_ack_of_the_request() {
    let (mut fixture, here, listener) = CoreFixture::with_id(Acks::Explicit, State::Listening);
    let child = fixture.report_request(listener);
    let request = fixture.expect_event(here, child, cm(CmEvent::ConnectRequest));
    assert_eq!((fixture.owed(listener), fixture.owed(child)), (1, 0));
    let mut other = fixture.clone();
    fixture.does(child, accept());
    fixture.report_and_take(child, CmEvent::Established);
    fixture.acks(request);

    let own = other.owes(here, child);
    assert_eq!(other.refuses(child, accept(), RefuseReason::OwesAcks).errno(), Errno::EBUSY);
    other.acks(own);
    other.does(child, accept());
    other.stops();
}

#[test]
fn a_listener_that_goes_leaves_its_channel_until_the_request_is_accepted() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let (listener, device_channel, child) = requested(&mut fixture, PortSpace::Tcp, here);
    fixture.does(listener, Request::Destroy);
    assert!(fixture.core.channel_info(device_channel).is_some());
    fixture.makes(child, accept(), "migrate_id");
    fixture.expect_call("accept", OK);
    let closes = fixture.core.channel_info(device_channel).is_some();
    fixture.all_well();
    assert_eq!((closes, fixture.core.channel_info(device_channel).is_some()), (true, false));
    fixture.report_and_take(child, CmEvent::Established);
}

#[test]
fn an_accept_is_refused_where_the_id_would_be_on_a_channel_that_failed() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let (_, device_channel, child) = requested(&mut fixture, PortSpace::Tcp, here);
    let mut other = fixture.clone();
    while fixture.core.handle_unreadable(here) {}
    fixture.refuses(child, accept(), RefuseReason::ChannelFailed(here));
    // A failed channel of the listener does not matter.
    while other.core.handle_unreadable(device_channel) {}
    other.does(child, accept());
    other.report_and_take(child, CmEvent::Established);
    // The channel fails after the accept.
    fixture.core.resume_channel(here).unwrap();
    fixture.does(child, accept());
    while fixture.core.handle_unreadable(here) {}
    fixture.passes(Duration::ZERO);
    fixture.sees(here, child, EventKind::DeadlinePassed(RequestKind::Accept));
}

#[test]
fn a_listener_is_released_when_the_ids_of_its_requests_have_left_its_channel() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let (listener, device_channel, taken) = requested(&mut fixture, PortSpace::Tcp, here);
    let rejected = fixture.report_request(listener);
    fixture.sees(here, rejected, cm(CmEvent::ConnectRequest));
    fixture.does(rejected, REJECT);
    let accepted = fixture.report_request(listener);
    fixture.sees(here, accepted, cm(CmEvent::ConnectRequest));
    fixture.does(accepted, accept());
    let on_it = |core: &Core, id: &IdKey| core.device_channel(*id) == Some(device_channel);
    let others: Vec<_> = fixture.core.ids().filter(|id| *id != listener && on_it(&fixture.core, id)).collect();
    assert_eq!(others, [taken, rejected]);
    fixture.submit(listener, TO_SYNC).unwrap();
    fixture.no_call();
    assert!(matches!(
        fixture.core.release(listener),
        Err(Refused::Request { reason: RefuseReason::SharesChannel, .. })
    ));
    for id in others {
        fixture.does(id, to(here));
    }
    let (_released, channel) = fixture.core.release(listener).unwrap();
    assert_eq!(channel, device_channel);
    fixture.core.check();
    fixture.does(taken, accept());
}
