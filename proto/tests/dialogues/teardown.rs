//! Teardown: a disconnect that ends when memory may be reused.

use cmid_proto::{Acks, Admission, Call, CmEvent, Errno, EventKind, IdKey, RefuseReason, Request, RequestKind, State};

use crate::fixture::{CoreFixture, OK, SOON, TO_SYNC, cm, to};

/// The core makes the second disconnect by itself, and reports no end of it.
fn answers(fixture: &mut CoreFixture, id: IdKey) {
    let call = fixture.takes_call("disconnect");
    assert_eq!(call, Call::Disconnect { id });
    assert_eq!(fixture.answers(OK), None);
}

#[test]
fn a_teardown_disconnects_answers_and_ends_with_the_time_wait() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
    let soon = fixture.within(SOON);
    fixture.submit_until(id, Request::Teardown, soon).unwrap();
    assert_eq!(fixture.expect_call("disconnect", OK).unwrap().result, Ok(()));
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Closing, Some((soon, id))));
    fixture.report_and_take(id, CmEvent::Disconnected);
    answers(&mut fixture, id);
    assert_eq!(fixture.state(id), State::Closing, "packets may still be under way");
    fixture.report_and_take(id, CmEvent::TimewaitExit);
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Closed, None));
    fixture.no_call();
    assert_eq!(fixture.refuses(id, Request::Teardown, RefuseReason::IsOver).errno(), Errno::EINVAL);
}

#[test]
fn both_sides_at_once_get_their_time_wait_by_the_second_disconnect() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let sides = [fixture.in_state(channel, State::Connected), fixture.in_state(channel, State::Connected)];
    for id in sides {
        fixture.does(id, Request::Teardown);
    }
    // Each side takes the other's request for the answer to its own. Without a second disconnect no time wait would
    // follow.
    for id in sides {
        fixture.report_and_take(id, CmEvent::Disconnected);
        answers(&mut fixture, id);
    }
    for id in sides {
        fixture.report_and_take(id, CmEvent::TimewaitExit);
        assert_eq!(fixture.state(id), State::Closed);
    }
}

#[test]
fn a_teardown_goes_on_from_wherever_the_connection_ends() {
    for from in [State::Connected, State::Disconnecting, State::PeerClosed, State::TimeWait, State::Closing] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, from);
        let soon = fixture.within(SOON);
        fixture.submit_until(id, Request::Teardown, soon).unwrap();
        fixture.expect_call("disconnect", OK);
        assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Closing, Some((soon, id))), "{from}");
        fixture.report_and_take(id, CmEvent::TimewaitExit);
        assert_eq!(fixture.state(id), State::Closed);
    }
}

#[test]
fn a_teardown_ends_at_its_deadline_and_what_comes_later_is_late() {
    for answer in [None, Some(CmEvent::Disconnected), Some(CmEvent::Rejected)] {
        let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
        fixture.does_soon(id, Request::Teardown);
        if let Some(kind) = answer {
            fixture.report_and_take(id, kind);
            answers(&mut fixture, id);
        }
        fixture.passes(SOON);
        let event = fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Teardown));
        assert_eq!((event.result(), fixture.state(id)), (Err(Errno::ETIMEDOUT), State::Closed), "{answer:?}");
        for kind in [CmEvent::Disconnected, CmEvent::TimewaitExit, CmEvent::Rejected] {
            assert_eq!(fixture.report(id, kind), Admission::Late);
        }
        fixture.no_call();
    }
}

#[test]
fn a_deadline_that_passes_before_the_second_disconnect_is_made_ends_it() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    fixture.does_soon(id, Request::Teardown);
    fixture.report_and_take(id, CmEvent::Disconnected);
    fixture.takes_call("disconnect");
    fixture.passes(SOON);
    fixture.no_call();
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Teardown));
    assert_eq!(fixture.state(id), State::Closed);
}

#[test]
fn a_teardown_that_the_device_refuses_leaves_what_was_under_way() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    let (soon, later) = (fixture.within(SOON), fixture.within(SOON * 2));
    fixture.submit_until(id, Request::Teardown, later).unwrap();
    let failure = fixture.expect_call("disconnect", Err(Errno::EBADF)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state), ("teardown", State::Connected));
    assert_eq!(fixture.core.poll_timeout(), None);
    fixture.does_until(id, Request::Disconnect, soon);
    fixture.submit_until(id, Request::Teardown, later).unwrap();
    assert!(fixture.expect_call("disconnect", Err(Errno::EBADF)).unwrap().result.is_err());
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Disconnecting, Some((soon, id))));
    fixture.passes(SOON);
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::Disconnect));
    assert_eq!(fixture.state(id), State::TimeWait);
}

#[test]
fn another_disconnect_leaves_the_teardown_its_deadline() {
    for outcome in [OK, Err(Errno::ENXIO)] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
        let soon = fixture.does_soon(id, Request::Teardown);
        fixture.submit(id, Request::Disconnect).unwrap();
        fixture.expect_call("disconnect", outcome);
        assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Closing, Some((soon, id))));
    }
}

#[test]
fn the_second_disconnect_does_not_wait_for_acks_and_a_migration_that_does_follows_it() {
    #[derive(PartialEq)]
    enum Then {
        Moves,
        GivesUp,
        HasNowhereToGo,
        IsDestroyed,
    }
    for then in [Then::Moves, Then::GivesUp, Then::HasNowhereToGo, Then::IsDestroyed] {
        let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Closing);
        let held = fixture.owes(here, id);
        fixture.submit_until(id, to(there), fixture.within(SOON)).unwrap();
        fixture.report(id, CmEvent::Disconnected);
        fixture.takes_call("disconnect");
        fixture.refuses(id, Request::Disconnect, RefuseReason::Busy(RequestKind::Teardown));
        if then == Then::GivesUp {
            fixture.passes(SOON);
        }
        fixture.acks(held);
        assert_eq!(fixture.takes_call("disconnect"), Call::Disconnect { id }, "first");
        let mut channels = vec![here, there];
        match then {
            Then::HasNowhereToGo => {
                fixture.closes(there).unwrap();
                assert!(fixture.expect_call("destroy_event_channel", OK).is_some());
                channels.pop();
            }
            Then::IsDestroyed => fixture.submit(id, Request::Destroy).unwrap(),
            Then::Moves | Then::GivesUp => {}
        }
        if then != Then::IsDestroyed {
            answers(&mut fixture, id);
        }
        match then {
            Then::Moves => {
                fixture.expect_call("migrate_id", OK);
                fixture.sees(there, id, EventKind::Migrated);
                fixture.sees(there, id, cm(CmEvent::Disconnected));
            }
            Then::GivesUp | Then::HasNowhereToGo => {
                fixture.no_call();
                fixture.sees(here, id, cm(CmEvent::Disconnected));
                assert_ne!(fixture.sees(here, id, EventKind::Migrated).status, 0);
            }
            Then::IsDestroyed => {
                assert_eq!(fixture.expect_call("destroy_id", OK).unwrap().result, Ok(()), "neither is made");
                fixture.no_event(here);
            }
        }
        fixture.no_call();
    }
}

#[test]
fn a_destroy_before_the_second_disconnect_takes_its_place() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Closing);
    fixture.report_and_take(id, CmEvent::Disconnected);
    fixture.takes_call("disconnect");
    fixture.refuses(id, to(channel), RefuseReason::Busy(RequestKind::Teardown));
    assert_eq!(fixture.makes(id, Request::Destroy, "destroy_id").unwrap().result, Ok(()));
    fixture.no_call();
    fixture.no_event(channel);
}

#[test]
fn in_synchronous_mode_it_ends_by_the_time_wait_its_deadline_or_the_removal() {
    for (end, result) in [
        (Some(CmEvent::TimewaitExit), Ok(())),
        (None, Err(Errno::ETIMEDOUT)),
        (Some(CmEvent::DeviceRemoval), Err(Errno::ENODEV)),
    ] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
        fixture.does(id, TO_SYNC);
        let private = fixture.core.channel(id).unwrap();
        fixture.does_soon(id, Request::Teardown);
        fixture.refuses(id, Request::Disconnect, RefuseReason::Busy(RequestKind::Teardown));
        fixture.report(id, CmEvent::Disconnected);
        answers(&mut fixture, id);
        assert_eq!(fixture.core.sync_result(id), None, "DISCONNECTED is not the end");
        match end {
            Some(kind) => assert_eq!(fixture.report(id, kind), Admission::Known),
            None => fixture.passes(SOON),
        }
        assert_eq!(fixture.core.sync_result(id), Some(result));
        assert_eq!(fixture.core.sync_event(id).map(|event| event.kind), end.map(cm));
        fixture.sees(private, id, cm(CmEvent::Disconnected));
        fixture.no_event(private);
    }
}

#[test]
fn it_goes_to_another_core_with_its_deadline() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let channel = one.channel(Acks::OnDelivery);
    let id = one.in_state(channel, State::Connected);
    one.does(id, TO_SYNC);
    let _soon = one.does_soon(id, Request::Teardown);
    one.report(id, CmEvent::Disconnected);
    let refused = one.core.release(id).map(drop).unwrap_err();
    assert!(refused.to_string().ends_with("teardown is under way"), "the second disconnect: {refused}");
    one.all_well();
    let (released, _) = one.core.release(id).unwrap();
    let (key, home) = two.core.adopt(released).unwrap();
    two.sees(home, key, cm(CmEvent::Disconnected));
    two.passes(SOON);
    assert_eq!((two.core.sync_result(key), two.state(key)), (Some(Err(Errno::ETIMEDOUT)), State::Closed));
}
