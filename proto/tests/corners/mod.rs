//! Corner cases that the dialogues do not reach.

mod deadlines;
mod groups;
mod loopback;
mod release;
mod requests;
#[cfg(feature = "serde")]
mod serialized;
mod summary;
mod values;

use cmid_proto::{Acks, CmEvent, Fault, RawEvent, RefuseReason, Request, State};

use crate::fixture::{CoreFixture, LISTEN, OK, TO_SYNC, cm, connect, raw, to};

#[test]
fn the_id_of_a_request_that_was_moved_stays_also_where_its_listener_came_by() {
    for sync in [false, true] {
        let mut fixture = CoreFixture::new();
        let [here, there, beyond] = [(); 3].map(|()| fixture.channel(Acks::OnDelivery));
        let listener = fixture.id(Some(here));
        fixture.does(listener, LISTEN);
        let child = fixture.report_request(listener);
        fixture.does(child, if sync { TO_SYNC } else { to(there) });
        let home = fixture.core.channel(child).unwrap();
        for channel in [there, beyond] {
            fixture.submit(listener, to(channel)).unwrap();
            fixture.no_call();
            assert_eq!((fixture.is_sync(child), fixture.channels_of(child)), (sync, (Some(home), Some(home))));
        }
        // The CONNECT_REQUEST is the listener's event.
        fixture.sees(beyond, child, cm(CmEvent::ConnectRequest));
        fixture.report(child, CmEvent::AddrChange);
        fixture.sees(home, child, cm(CmEvent::AddrChange));
    }
}

#[test]
fn events_that_move_can_be_taken_on_the_new_channel() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Idle);
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!([here, there].map(|channel| fixture.core.may_have_event(channel)), [true, false]);
    fixture.does(id, to(there));
    assert!(fixture.core.has_events() && fixture.core.may_have_event(there), "whoever serves it has not looked");
    fixture.sees(there, id, cm(CmEvent::AddrChange));
    assert!(!fixture.core.has_events());
}

#[test]
fn a_request_is_delivered_where_the_device_has_moved_its_listener() {
    let (mut fixture, [here, there], listener) = CoreFixture::with_id_on_two(Acks::Explicit, State::Idle);
    fixture.does(listener, LISTEN);
    let child = fixture.report_request(listener);
    // A listener without its device migrates like any other id.
    let device_channel = fixture.core.device_channel(listener).unwrap();
    fixture.report_on(device_channel, raw(listener, CmEvent::DeviceRemoval, 0));
    fixture.makes(listener, to(there), "migrate_id");
    fixture.all_well();
    fixture.no_event(here);
    fixture.sees(there, child, cm(CmEvent::ConnectRequest));
    fixture.sees(there, listener, cm(CmEvent::DeviceRemoval));
}

#[test]
fn an_id_with_a_qp_is_established_by_the_library_alone() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Bound);
    fixture.does(id, Request::AttachQp);
    fixture.lead(id, State::RouteResolved);
    fixture.does(id, connect());
    // No library reports this event here, but the core does not depend on that.
    fixture.report_and_take(id, CmEvent::ConnectResponse);
    fixture.refuses(id, Request::Establish, RefuseReason::HasQp);
}

#[test]
fn a_request_on_a_channel_that_is_being_closed_is_a_fault() {
    let (mut fixture, here, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    fixture.makes(listener, Request::Destroy, "destroy_id");
    fixture.takes_call("destroy_event_channel");
    // The core accepts no event on this channel, so the key is from another channel.
    assert_eq!(fixture.core.wants_event(device_channel), None);
    let child = fixture.core.wants_event(here).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(
        fixture.core.handle_event(device_channel, request),
        Err(Fault::NoSuchChannel { channel: device_channel })
    );
    fixture.core.check();
    fixture.answers(OK);
    assert_eq!((fixture.core.ids().count(), fixture.core.channels().count()), (0, 1));
    fixture.stops();
}

#[test]
fn an_id_does_not_listen_while_one_ack_is_owed() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::Explicit, State::Idle);
    let event = fixture.owes(here, id);
    fixture.refuses(id, LISTEN, RefuseReason::OwesAcks);
    fixture.acks(event);
    fixture.does(id, LISTEN);
}
