//! Invalid input from a device or a driver.

use cmid_proto::{Acks, Admission, CmEvent, Fault, PrivateData, RawEvent, Request, State};

use crate::fixture::{CoreFixture, OK, cm, raw};

#[test]
fn an_event_of_an_unknown_id_is_counted() {
    let (mut fixture, channel, old) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.does(old, Request::Destroy);
    fixture.id(Some(channel));
    assert_eq!(fixture.report_on(channel, raw(old, CmEvent::AddrChange, 0)), Admission::Stray);
    fixture.no_event(channel);
    assert_eq!(fixture.core.summary().counters.stray, 1);
}

#[test]
fn an_event_on_an_unknown_channel_is_a_fault() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    fixture.closes(channel).unwrap();
    fixture.all_well();
    let other = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(other));
    let fault = fixture.core.handle_event(channel, raw(id, CmEvent::AddrChange, 0)).unwrap_err();
    assert_eq!(fault, Fault::NoSuchChannel { channel });
    assert_eq!(fixture.core.poll_event(channel), None);
    fixture.stops();
}

#[test]
fn a_request_under_the_wrong_key_is_a_fault() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    let id = fixture.id(Some(channel));
    let wanted = fixture.core.wants_event(channel).unwrap();
    for (key, of) in [(id, Some(listener)), (listener, Some(listener)), (wanted, None), (listener, None)] {
        let before = fixture.core.clone();
        let request = RawEvent { listener: of, ..raw(key, CmEvent::ConnectRequest, 0) };
        assert_eq!(fixture.core.handle_event(channel, request), Err(Fault::WrongChild { id: key }));
        fixture.core.check();
        assert_eq!(fixture.core.ids().count(), before.ids().count());
        fixture.no_event(channel);
    }
    assert_eq!(fixture.core.summary().counters.faults, 4);
    fixture.stops();
}

#[test]
fn a_listener_means_nothing_on_an_event_that_is_no_request() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let (id, other) = (fixture.id(Some(channel)), fixture.id(Some(channel)));
    let odd = RawEvent { listener: Some(other), ..raw(id, CmEvent::AddrChange, 0) };
    assert_eq!(fixture.report_on(channel, odd), Admission::Known);
    let event = fixture.sees(channel, id, cm(CmEvent::AddrChange));
    assert_eq!(event.listener, None);
}

#[test]
fn a_request_for_a_listener_that_is_gone_is_destroyed() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    fixture.does(listener, Request::Destroy);
    let child = fixture.core.wants_event(channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(fixture.report_on(channel, request), Admission::Stray);
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
}

#[test]
fn nor_on_an_event_that_is_late() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    let late = RawEvent { listener: Some(id), ..raw(id, CmEvent::AddrResolved, 0) };
    assert_eq!(fixture.report_on(channel, late), Admission::Late);
    assert_eq!(fixture.state(id), State::Connected);
}

#[test]
fn private_data_of_any_length_is_taken() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connecting);
    let long = RawEvent { private_data: &[7; 1000][..], ..raw(id, CmEvent::Rejected, i32::MAX) };
    fixture.report_on(channel, long);
    let event = fixture.sees(channel, id, cm(CmEvent::Rejected));
    assert_eq!(event.private_data.len(), PrivateData::MAX);
}

#[test]
fn a_user_event_keeps_its_argument_across_a_migration() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (id, other) = (fixture.id(Some(channel)), fixture.channel(Acks::OnDelivery));
    let argument = u64::MAX - 7;
    let bytes = argument.to_ne_bytes();
    for kind in [CmEvent::User, CmEvent::AddrChange] {
        let event = RawEvent { private_data: &bytes[..], ..raw(id, kind, 0) };
        assert_eq!(fixture.report_on(channel, event), Admission::Known);
    }
    fixture.does(id, Request::Migrate { to: Some(other) });
    assert_eq!(fixture.sees(other, id, cm(CmEvent::User)).argument(), Some(argument));
    assert_eq!(fixture.sees(other, id, cm(CmEvent::AddrChange)).argument(), None);
    // A device that reports less than an argument.
    assert_eq!(fixture.report_on(other, raw(id, CmEvent::User, 0)), Admission::Known);
    assert_eq!(fixture.sees(other, id, cm(CmEvent::User)).argument(), None);
}
