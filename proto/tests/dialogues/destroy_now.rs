//! An id whose receipts are lost is destroyed all the same.

use std::time::Duration;

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Errno, EventKind, IdKey, PortSpace, RawEvent, Receipt, Refused, Request, State, Time,
    Verb, Why,
};

use crate::fixture::{BIND, LISTEN, OK, Stage, TO_SYNC, addr, cm, raw, to};

const NOW: Request<'static> = Request::DestroyNow;

/// An id in a state that owes an ack, whose receipt the application has mislaid.
fn owing(state: State) -> (Stage, ChannelKey, IdKey, Receipt) {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, state);
    let receipt = owes(&mut stage, channel, id);
    (stage, channel, id, receipt)
}

fn owes(stage: &mut Stage, channel: ChannelKey, id: IdKey) -> Receipt {
    let line = stage.core.line(id).unwrap();
    stage.says_on(line, raw(id, CmEvent::AddrChange, 0));
    stage.expect_event(channel, id, cm(CmEvent::AddrChange)).receipt.unwrap()
}

/// It comes too late, is given back, and changes nothing.
fn is_refused(stage: &mut Stage, receipt: Receipt) {
    let (before, owner) = (stage.core.clone(), receipt.owner());
    assert_eq!(stage.core.ack(receipt).unwrap_err().receipt.owner(), owner);
    assert_eq!(stage.core, before);
}

#[test]
fn a_lost_receipt_does_not_make_an_id_immortal() {
    for state in [State::Idle, State::AddrResolved, State::Connected, State::Failed, State::Listening] {
        let (mut stage, channel, id, lost) = owing(state);
        assert_eq!(stage.core.ids_with_owed_acks().collect::<Vec<_>>(), [(id, 1)]);
        stage.asks(id, NOW).unwrap();
        assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok(), "it ends with its call");
        stage.all_well();
        assert_eq!(stage.core.state(id), None);
        assert_eq!(stage.core.ids_with_owed_acks().count(), 0);
        is_refused(&mut stage, lost);
        // The next tenant of its slot has nothing to do with it.
        let next = stage.id(Some(channel));
        assert_eq!(next.slot(), id.slot());
        let held = owes(&mut stage, channel, next);
        stage.core.ack(held).unwrap();
        let listener = if state == State::Listening { None } else { stage.core.id_keys().find(|&other| other != next) };
        stage.ends(&listener.into_iter().chain([next]).collect::<Vec<_>>(), &[channel]);
    }
}

#[test]
fn ids_with_owed_acks_are_listed_with_how_many() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let [one, none, two] = [(); 3].map(|()| stage.id(Some(channel)));
    let held = [one, two, two].map(|id| owes(&mut stage, channel, id));
    assert_eq!(stage.core.ids_with_owed_acks().collect::<Vec<_>>(), [(one, 1), (two, 2)]);
    for receipt in held {
        stage.core.ack(receipt).unwrap();
    }
    assert_eq!(stage.core.ids_with_owed_acks().count(), 0);
    stage.ends(&[one, none, two], &[channel]);
}

#[test]
fn it_ends_a_destroy_that_waits_for_acks() {
    for deadline in [Time::NEVER, Time(5_000_000_000)] {
        let (mut stage, channel, id, lost) = owing(State::Connected);
        stage.asks_until(id, Request::Destroy, deadline).unwrap();
        stage.no_call();
        assert_eq!(stage.core.ids_with_owed_acks().collect::<Vec<_>>(), [(id, 1)], "one that is to be destroyed too");
        stage.asks(id, NOW).unwrap();
        assert_eq!(stage.core.poll_timeout(), None, "the deadline is over");
        assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
        stage.no_event(channel);
        is_refused(&mut stage, lost);
        stage.ends(&[], &[channel]);
    }
}

#[test]
fn one_that_waits_for_nothing_is_not_hastened() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, BIND).unwrap();
    let (bind, _) = stage.takes_call("bind_addr");
    stage.asks(id, Request::Destroy).unwrap();
    stage.refuses(id, NOW, Why::Busy(Verb::Destroy));
    stage.answers(bind, OK);
    stage.refuses(id, NOW, Why::Busy(Verb::Destroy));
    stage.all_well();
    stage.sees(channel, id, EventKind::Destroyed);
    assert_eq!(stage.asks(id, NOW), Err(Refused::NoSuchId { id, request: Verb::DestroyNow }));
    stage.ends(&[], &[channel]);
}

#[test]
fn a_call_that_is_under_way_is_waited_for() {
    for waits_already in [false, true] {
        let (mut stage, channel, id, lost) = owing(State::Idle);
        stage.asks(id, BIND).unwrap();
        let (bind, _) = stage.takes_call("bind_addr");
        if waits_already {
            stage.asks(id, Request::Destroy).unwrap();
        }
        stage.asks(id, NOW).unwrap();
        stage.no_call();
        is_refused(&mut stage, lost);
        assert_eq!(stage.answers(bind, OK), None);
        assert_eq!(stage.expect_call("destroy_id", OK), None, "it ends by event");
        assert_eq!(stage.sees(channel, id, EventKind::Destroyed).result(), Ok(()));
        stage.no_event(channel);
        stage.ends(&[], &[channel]);
    }
}

#[test]
fn a_migration_that_waits_for_acks_goes_with_it() {
    for request in [None, Some(TO_SYNC)] {
        let (mut stage, here, id, lost) = owing(State::Connected);
        let there = stage.channel(Acks::Explicit);
        stage.asks(id, request.unwrap_or(to(there))).unwrap();
        stage.no_call();
        stage.asks(id, NOW).unwrap();
        assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok(), "and no migration before it");
        is_refused(&mut stage, lost);
        stage.no_event(here);
        stage.no_event(there);
        stage.ends(&[], &[here, there]);
    }
}

#[test]
fn a_listener_goes_with_its_undelivered_requests_and_leaves_those_that_were_taken() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let listener = stage.id(Some(channel));
    stage.does(listener, LISTEN);
    let taken = stage.says_request(listener);
    let event = stage.expect_event(channel, taken, cm(CmEvent::ConnectRequest));
    let untaken = stage.says_request(listener);
    stage.asks(listener, NOW).unwrap();
    stage.all_well();
    assert_eq!((stage.core.state(listener), stage.core.state(untaken)), (None, None));
    assert_eq!(stage.state(taken), State::Requested);
    stage.no_event(channel);
    is_refused(&mut stage, event.receipt.unwrap());
    stage.ends(&[taken], &[channel]);
}

#[test]
fn an_id_in_synchronous_mode_goes_with_its_open_request_and_its_channel() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let listener = stage.id(Some(channel));
    stage.does(listener, LISTEN);
    let private = stage.core.line(listener).unwrap();
    let child = stage.says_request(listener);
    let event = stage.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    // Its migration waits for the ack; the deadline of that passes, so nothing but the receipt is open.
    stage.asks_until(listener, TO_SYNC, stage.within(Duration::from_secs(1))).unwrap();
    stage.passes(Duration::from_secs(1));
    assert_eq!(stage.sees(channel, listener, EventKind::Migrated).result(), Err(Errno::ETIMEDOUT));
    stage.core.ack(event.receipt.unwrap()).unwrap();
    stage.does(listener, TO_SYNC);
    stage.asks(listener, Request::GetRequest).unwrap();
    stage.asks(listener, NOW).unwrap();
    stage.all_well();
    // The id of the request that was taken is on it still.
    assert_eq!((stage.core.state(listener), stage.core.line(child)), (None, Some(private)));
    stage.does(child, Request::Destroy);
    assert!(!stage.core.has_channel(private));
    stage.ends(&[], &[channel]);
}

#[test]
fn a_leave_that_waits_for_acks_goes_with_it() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.id_for(PortSpace::Udp, Some(channel));
    stage.does(id, BIND);
    let group = stage.core.join(stage.now, id, addr(9), false, Time::NEVER).unwrap();
    stage.all_well();
    let joined = RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) };
    stage.says_on(channel, joined);
    let lost = stage.expect_event(channel, id, cm(CmEvent::MulticastJoin)).receipt.unwrap();
    stage.asks(id, Request::Leave { group }).unwrap();
    stage.no_call();
    stage.asks(id, NOW).unwrap();
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok(), "and no leave before it");
    assert_eq!(stage.core.groups(), 0);
    stage.no_event(channel);
    is_refused(&mut stage, lost);
    stage.ends(&[], &[channel]);
}

#[test]
fn after_a_destroy_that_gave_up_at_its_deadline() {
    let (mut stage, channel, id, lost) = owing(State::Connected);
    stage.asks_until(id, Request::Destroy, stage.within(Duration::from_secs(1))).unwrap();
    stage.passes(Duration::from_secs(1));
    assert_eq!(stage.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    stage.asks(id, NOW).unwrap();
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    is_refused(&mut stage, lost);
    stage.ends(&[], &[channel]);
}

#[test]
fn an_old_receipt_is_refused_also_where_the_device_could_not_destroy_the_id() {
    let (mut stage, channel, id, lost) = owing(State::Bound);
    stage.asks(id, NOW).unwrap();
    let failure = stage.expect_call("destroy_id", Err(Errno::ENOMEM)).unwrap().result.unwrap_err();
    assert_eq!((failure.errno, stage.state(id)), (Errno::ENOMEM, State::Failed));
    // What it reports from now on is delivered, and owes nothing.
    stage.says(id, CmEvent::AddrChange);
    assert_eq!(stage.expect_event(channel, id, cm(CmEvent::AddrChange)).receipt, None);
    is_refused(&mut stage, lost);
    stage.ends(&[id], &[channel]);
}
