//! What a device or a driver says that makes no sense.

use cmid_proto::{Acks, Admission, CmEvent, Errno, Fault, RawEvent, Request, State};

use crate::fixture::{BIND, OK, Stage, cm, raw};

#[test]
fn an_event_of_an_unknown_id_is_counted() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let old = stage.id(Some(channel));
    stage.does(old, Request::Destroy);
    let new = stage.id(Some(channel));
    assert_eq!(stage.says_on(channel, raw(old, CmEvent::AddrChange, 0)), Admission::Stray);
    stage.no_event(channel);
    assert_eq!(stage.core.counters().stray, 1);
    stage.ends(&[new], &[channel]);
}

#[test]
fn an_event_on_an_unknown_channel_is_a_fault() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    stage.core.close_channel(channel).unwrap();
    stage.all_well();
    let other = stage.channel(Acks::OnDelivery);
    let id = stage.id(Some(other));
    let fault = stage.core.handle_event(channel, raw(id, CmEvent::AddrChange, 0)).unwrap_err();
    assert_eq!(fault, Fault::NoSuchChannel { channel });
    assert_eq!(stage.core.poll_event(channel), None);
}

#[test]
fn a_request_under_the_wrong_key_is_a_fault() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(channel, State::Listening);
    let id = stage.id(Some(channel));
    let wanted = stage.core.wants_event(channel).unwrap();
    for (key, of) in [(id, Some(listener)), (listener, Some(listener)), (wanted, None), (listener, None)] {
        let before = stage.core.clone();
        let request = RawEvent { listener: of, ..raw(key, CmEvent::ConnectRequest, 0) };
        assert_eq!(stage.core.handle_event(channel, request), Err(Fault::WrongChild { id: key }));
        stage.core.check();
        assert_eq!(stage.core.ids(), before.ids());
        stage.no_event(channel);
    }
    assert_eq!(stage.core.counters().faults, 4);
}

#[test]
fn a_listener_means_nothing_on_an_event_that_is_no_request() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let (id, other) = (stage.id(Some(channel)), stage.id(Some(channel)));
    let odd = RawEvent { listener: Some(other), ..raw(id, CmEvent::AddrChange, 0) };
    assert_eq!(stage.says_on(channel, odd), Admission::Known);
    let event = stage.sees(channel, id, cm(CmEvent::AddrChange));
    assert_eq!(event.listener, None);
    stage.ends(&[id, other], &[channel]);
}

#[test]
fn a_request_for_a_listener_that_is_gone_is_destroyed() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let listener = stage.in_state(channel, State::Listening);
    stage.does(listener, Request::Destroy);
    let child = stage.core.wants_event(channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(stage.says_on(channel, request), Admission::Stray);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    stage.ends(&[], &[channel]);
}

#[test]
fn an_outcome_counts_once() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, BIND).unwrap();
    let (bind, _) = stage.takes_call("bind_addr");
    stage.answers(bind, OK);
    assert_eq!(stage.core.handle_outcome(bind, Err(Errno::EIO)), Err(Fault::NoSuchCall { token: bind }));
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!(stage.core.handle_outcome(bind, OK), Err(Fault::NoSuchCall { token: bind }), "not the destroy's");
    let (destroy, _) = stage.takes_call("destroy_id");
    stage.answers(destroy, OK);
    assert_eq!(stage.core.handle_outcome(destroy, OK), Err(Fault::NoSuchCall { token: destroy }));
    assert_eq!(stage.core.counters().faults, 3);
}

#[test]
fn an_outcome_of_the_opening_does_not_close_a_channel() {
    let mut stage = Stage::new();
    let channel = stage.core.open_channel(Acks::OnDelivery).unwrap();
    let (open, _) = stage.takes_call("create_event_channel");
    stage.answers(open, OK);
    stage.core.close_channel(channel).unwrap();
    assert_eq!(stage.core.handle_outcome(open, OK), Err(Fault::NoSuchCall { token: open }));
    assert!(stage.core.has_channel(channel));
    stage.expect_call("destroy_event_channel", OK);
    assert!(!stage.core.has_channel(channel));
}

#[test]
fn private_data_of_any_length_is_taken() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connecting);
    let long = RawEvent { private_data: &[7; 1000], ..raw(id, CmEvent::Rejected, i32::MAX) };
    stage.says_on(channel, long);
    let event = stage.sees(channel, id, cm(CmEvent::Rejected));
    assert_eq!(event.private_data.len(), cmid_proto::PRIVATE_DATA_MAX);
    stage.ends(&[id], &[channel]);
}
