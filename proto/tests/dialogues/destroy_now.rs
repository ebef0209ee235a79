//! Destruction of ids with lost ack tokens.

use std::time::Duration;

use cmid_proto::{
    AckToken, Acks, ChannelKey, CmEvent, Errno, EventKind, IdKey, RefuseReason, Refused, Request, RequestKind, State,
    Time,
};

use crate::fixture::{CoreFixture, LISTEN, SOON, TO_SYNC, cm, to};

const NOW: Request<'static> = Request::DestroyNow;

/// An id in `state` that owes an ack, and the ack token, which the tests treat as lost.
fn owing(state: State) -> (CoreFixture, ChannelKey, IdKey, AckToken) {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, state);
    let ack_token = fixture.owes(channel, id).ack_token.unwrap();
    (fixture, channel, id, ack_token)
}

/// Asserts that the core refuses the token, returns it, and does not change.
fn is_refused(fixture: &mut CoreFixture, ack_token: AckToken) {
    let (before, owner) = (fixture.core.clone(), ack_token.owner());
    assert_eq!(fixture.core.ack(ack_token).unwrap_err().ack_token.owner(), owner);
    assert_eq!(fixture.core, before);
}

/// The ids that acks are owed for, with their number.
fn owing_ids(fixture: &CoreFixture) -> Vec<(IdKey, u32)> {
    let owed = |id| fixture.owed(id);
    fixture.core.ids().map(|id| (id, owed(id))).filter(|&(_, owed)| owed > 0).collect()
}

#[test]
fn a_lost_receipt_does_not_make_an_id_immortal() {
    for state in [State::Idle, State::AddrResolved, State::Connected, State::Failed, State::Listening] {
        let (mut fixture, channel, id, lost) = owing(state);
        assert_eq!(owing_ids(&fixture), [(id, 1)]);
        assert!(fixture.makes(id, NOW, "destroy_id").unwrap().result.is_ok(), "it ends with its call");
        fixture.all_well();
        assert_eq!(fixture.core.state(id), None);
        assert_eq!(owing_ids(&fixture), []);
        is_refused(&mut fixture, lost);
        // The token has no effect on the next id in the slot.
        let next = fixture.id(Some(channel));
        assert_eq!(next.slot(), id.slot());
        let held = fixture.owes(channel, next);
        fixture.acks(held);
    }
}

#[test]
fn ids_with_owed_acks_are_listed_with_how_many() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let [one, _, two] = [(); 3].map(|()| fixture.id(Some(channel)));
    let held = [one, two, two].map(|id| fixture.owes(channel, id));
    assert_eq!(owing_ids(&fixture), [(one, 1), (two, 2)]);
    for event in held {
        fixture.acks(event);
    }
    assert_eq!(owing_ids(&fixture), []);
}

#[test]
fn what_waits_for_the_acks_goes_with_it() {
    let later = Time(5_000_000_000);
    for (waits, deadline) in
        [("destroy", Time::NEVER), ("destroy", later), ("move", later), ("sync", later), ("leave", later)]
    {
        let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
        let (id, group, event) = fixture.member_that_owes(here);
        let request = match waits {
            "destroy" => Request::Destroy,
            "move" => to(there),
            "sync" => TO_SYNC,
            _ => Request::Leave { group },
        };
        fixture.submit_until(id, request, deadline).unwrap();
        fixture.no_call();
        assert_eq!(owing_ids(&fixture), [(id, 1)], "one that is to be destroyed too");
        assert!(fixture.makes(id, NOW, "destroy_id").unwrap().result.is_ok(), "no {waits} is made before it");
        assert_eq!((fixture.core.poll_timeout(), fixture.core.summary().groups), (None, 0), "the deadline is over");
        is_refused(&mut fixture, event.ack_token.unwrap());
        fixture.no_event(here);
        fixture.no_event(there);
    }
    // A destroy that gave up at its deadline.
    let (mut fixture, channel, id, lost) = owing(State::Connected);
    fixture.submit_until(id, Request::Destroy, fixture.within(SOON)).unwrap();
    fixture.passes(SOON);
    assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    assert!(fixture.makes(id, NOW, "destroy_id").unwrap().result.is_ok());
    is_refused(&mut fixture, lost);
}

#[test]
fn one_that_waits_for_nothing_is_not_hastened() {
    let (mut fixture, channel, id, ack_token) = owing(State::Connected);
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.core.ack(ack_token).unwrap();
    fixture.refuses(id, NOW, RefuseReason::Busy(RequestKind::Destroy));
    fixture.all_well();
    fixture.sees(channel, id, EventKind::Destroyed);
    assert_eq!(fixture.submit(id, NOW), Err(Refused::NoSuchId { id, request: RequestKind::DestroyNow }));
}

#[test]
fn a_listener_goes_with_its_undelivered_requests_and_leaves_those_that_were_taken() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::Explicit, State::Idle);
    fixture.does(listener, LISTEN);
    let taken = fixture.report_request(listener);
    let event = fixture.expect_event(channel, taken, cm(CmEvent::ConnectRequest));
    let untaken = fixture.report_request(listener);
    fixture.submit(listener, NOW).unwrap();
    fixture.all_well();
    assert_eq!((fixture.core.state(listener), fixture.core.state(untaken)), (None, None));
    assert_eq!(fixture.state(taken), State::Requested);
    fixture.no_event(channel);
    is_refused(&mut fixture, event.ack_token.unwrap());
}

#[test]
fn an_id_in_synchronous_mode_goes_with_its_open_request_and_its_channel() {
    let (mut fixture, channel, listener) = CoreFixture::with_id(Acks::Explicit, State::Idle);
    fixture.does(listener, LISTEN);
    let private = fixture.core.device_channel(listener).unwrap();
    let child = fixture.report_request(listener);
    let event = fixture.expect_event(channel, child, cm(CmEvent::ConnectRequest));
    // The migration waits for the ack until its deadline. Then nothing is open except the ack.
    fixture.submit_until(listener, TO_SYNC, fixture.within(Duration::from_secs(1))).unwrap();
    fixture.passes(Duration::from_secs(1));
    assert_eq!(fixture.sees(channel, listener, EventKind::Migrated).result(), Err(Errno::ETIMEDOUT));
    fixture.core.ack(event.ack_token.unwrap()).unwrap();
    fixture.does(listener, TO_SYNC);
    fixture.submit(listener, Request::GetRequest).unwrap();
    fixture.submit(listener, NOW).unwrap();
    fixture.all_well();
    // The id of the taken request is still on the channel.
    assert_eq!((fixture.core.state(listener), fixture.core.device_channel(child)), (None, Some(private)));
    fixture.does(child, Request::Destroy);
    assert!(fixture.core.channel_info(private).is_none());
}

#[test]
fn an_old_receipt_is_refused_also_where_the_device_could_not_destroy_the_id() {
    let (mut fixture, channel, id, lost) = owing(State::Bound);
    let failure = fixture.fails(id, NOW, "destroy_id", Errno::ENOMEM);
    assert_eq!((failure.errno, fixture.state(id)), (Errno::ENOMEM, State::Failed));
    // Later events of the id are delivered and owe no ack.
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!(fixture.expect_event(channel, id, cm(CmEvent::AddrChange)).ack_token, None);
    is_refused(&mut fixture, lost);
    // Nor does a leave wait for the ack of its group.
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let (id, group, event) = fixture.member_that_owes(channel);
    fixture.fails(id, NOW, "destroy_id", Errno::ENOMEM);
    is_refused(&mut fixture, event.ack_token.unwrap());
    assert!(fixture.makes(id, Request::Leave { group }, "leave_multicast").unwrap().result.is_ok());
}
