//! Migration in every state, with and without undelivered events.

use cmid_proto::{
    Acks, Admission, Call, CmEvent, Errno, EventKind, RefuseReason, Refused, Request, RequestKind, State,
};

use crate::fixture::{CoreFixture, OK, RESOLVE, SOON, TO_SYNC, accept, cm, connect, raw, to};

/// An event that every living state except *removed* delivers, and that changes no state.
const ANY: CmEvent = CmEvent::Unknown(1000);

/// The states that migrate at the device. A listener migrates without it: see `listeners.rs`.
fn moving_states() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|&state| !matches!(state, State::Destroying | State::Listening))
}

#[test]
fn every_state_migrates_with_its_undelivered_events_ahead_of_later_ones() {
    for state in moving_states() {
        for undelivered in [0, 1, 3] {
            let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, state);
            let bystander = fixture.id(Some(here));
            for status in 0..undelivered {
                let known = state != State::Removed;
                fixture.report_status(id, ANY, status);
                fixture.report_status(bystander, ANY, status);
                assert_eq!(fixture.core.summary().counters.late, if known { 0 } else { status as u64 + 1 });
            }
            let from = fixture.core.device_channel(id).unwrap();
            assert_eq!(from != here, matches!(state, State::Requested | State::SidrReqReceived), "{state}");
            fixture.submit(id, to(there)).unwrap();
            let call = fixture.takes_call("migrate_id");
            assert_eq!(call, Call::Migrate { id, from, to: there });
            assert!(fixture.answers(OK).unwrap().result.is_ok());
            assert_eq!((fixture.state(id), fixture.core.channel(id)), (state, Some(there)));
            fixture.report_status(id, ANY, 100);
            if state != State::Removed {
                for status in (0..undelivered).chain([100]) {
                    assert_eq!(fixture.sees(there, id, cm(ANY)).status, status, "{state}");
                }
            }
            fixture.no_event(there);
            for status in 0..undelivered {
                assert_eq!(fixture.sees(here, bystander, cm(ANY)).status, status);
            }
            fixture.no_event(here);
        }
    }
}

#[test]
fn every_state_waits_for_the_acks_of_what_was_delivered() {
    for state in moving_states().filter(|&state| state != State::Removed) {
        for target_acks in [Acks::Explicit, Acks::OnDelivery] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let there = fixture.channel(target_acks);
            let id = fixture.in_state(here, state);
            fixture.report_status(id, ANY, 1);
            fixture.report_status(id, ANY, 2);
            let held = fixture.expect_event(here, id, cm(ANY));
            fixture.submit(id, to(there)).unwrap();
            fixture.no_call();
            fixture.acks(held);
            fixture.expect_call("migrate_id", OK);
            fixture.sees(there, id, EventKind::Migrated);
            assert_eq!(fixture.sees(there, id, cm(ANY)).status, 2, "{state}");
            assert_eq!(fixture.state(id), state);
        }
    }
}

#[test]
fn every_state_survives_a_migration_that_fails() {
    for state in moving_states() {
        let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, state);
        let waits = fixture.report(id, ANY) == Admission::Known;
        let failure = fixture.fails(id, to(there), "migrate_id", Errno::ENXIO);
        assert_eq!((failure.call, failure.state, failure.errno), ("migrate_id", state, Errno::ENXIO));
        assert_eq!((fixture.state(id), fixture.core.channel(id)), (state, Some(here)));
        if waits {
            fixture.sees(here, id, cm(ANY));
        }
        fixture.closes(there).unwrap();
        fixture.all_well();
    }
}

#[test]
fn every_state_goes_to_synchronous_mode_and_back() {
    for state in moving_states() {
        let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, state);
        let before = fixture.core.channels().count();
        let waits = fixture.report(id, ANY) == Admission::Known;
        fixture.makes(id, TO_SYNC, "create_event_channel");
        fixture.expect_call("migrate_id", OK);
        let private = fixture.core.channel(id).unwrap();
        assert!(fixture.is_sync(id) && fixture.core.channel_info(private).is_some_and(|it| it.is_private));
        let refused = fixture.submit(id, TO_SYNC).unwrap_err();
        let reason = RefuseReason::AlreadySync;
        assert_eq!(refused, Refused::Request { id, request: RequestKind::Migrate, state, reason });
        fixture.makes(id, to(here), "migrate_id");
        fixture.expect_call("destroy_event_channel", OK);
        assert_eq!((fixture.state(id), fixture.is_sync(id)), (state, false));
        assert_eq!(fixture.core.channels().count(), before);
        if waits {
            fixture.sees(here, id, cm(ANY));
        }
        fixture.no_event(here);
    }
}

#[test]
fn an_id_may_migrate_to_where_it_is_and_its_events_go_to_the_end() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (one, two) = (fixture.in_state(channel, State::Bound), fixture.in_state(channel, State::Bound));
    fixture.report(one, ANY);
    fixture.report(two, ANY);
    assert!(fixture.makes(one, to(channel), "migrate_id").unwrap().result.is_ok());
    fixture.sees(channel, two, cm(ANY));
    fixture.sees(channel, one, cm(ANY));
    // They stay where they are if the migration fails.
    fixture.report(one, ANY);
    fixture.report(two, ANY);
    fixture.fails(one, to(channel), "migrate_id", Errno::EBADF);
    fixture.sees(channel, one, cm(ANY));
    fixture.sees(channel, two, cm(ANY));
}

#[test]
fn a_channel_that_is_closed_is_refused() {
    let (mut fixture, [_here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Bound);
    fixture.closes(there).unwrap();
    fixture.all_well();
    let refused = fixture.submit(id, to(there)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EBADF);
    assert_eq!(refused.to_string(), format!("migrate_id on {id} while bound: there is no channel {there}"));
}

#[test]
fn the_new_channel_is_to_be_read_after_a_migration() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::OnDelivery, State::Bound);
    assert_eq!(fixture.core.poll_readable(), None);
    fixture.does(id, to(there));
    assert_eq!(fixture.core.poll_readable(), Some(there), "the kernel wakes no one");
    // An event that was read from the old channel before the migration is delivered on the new one.
    fixture.report_on(here, raw(id, ANY, 0));
    fixture.sees(there, id, cm(ANY));
}

#[test]
fn a_private_channel_that_cannot_be_opened_leaves_the_id_where_it_is() {
    let (mut fixture, here, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    let failure = fixture.fails(id, TO_SYNC, "create_event_channel", Errno::EMFILE);
    assert_eq!(failure.to_string(), "create_event_channel on id0 while connected: EMFILE");
    fixture.makes(id, TO_SYNC, "create_event_channel");
    fixture.expect_call("migrate_id", Err(Errno::ENXIO));
    fixture.expect_call("destroy_event_channel", OK);
    assert_eq!((fixture.core.channel(id), fixture.is_sync(id)), (Some(here), false));
    fixture.does(id, Request::Disconnect);
}

/// Each operation that ends by an event: the state before, the request, the event, the state after.
fn operations() -> [(State, Request<'static>, CmEvent, State); 7] {
    [
        (State::Bound, RESOLVE, CmEvent::AddrResolved, State::AddrResolved),
        (State::AddrResolved, Request::ResolveRoute, CmEvent::RouteResolved, State::RouteResolved),
        (State::RouteResolved, connect(), CmEvent::Established, State::Connected),
        (State::Requested, accept(), CmEvent::Established, State::Connected),
        (State::Connected, Request::Disconnect, CmEvent::Disconnected, State::TimeWait),
        (State::Connected, Request::Teardown, CmEvent::TimewaitExit, State::Closed),
        (State::PeerClosed, Request::Teardown, CmEvent::TimewaitExit, State::Closed),
    ]
}

#[test]
fn an_operation_goes_on_where_its_id_has_moved_to() {
    for (from, request, end, after) in operations() {
        let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, from);
        let soon = fixture.within(SOON);
        fixture.submit_until(id, request, soon).unwrap();
        if request.request_kind() == RequestKind::Accept {
            fixture.expect_call("migrate_id", OK);
        }
        assert!(fixture.answers(OK).is_some());
        fixture.makes(id, to(there), "migrate_id");
        assert_eq!(fixture.core.poll_timeout(), Some((soon, id)));
        let mut late = fixture.clone();
        late.passes(SOON);
        late.sees(there, id, EventKind::DeadlinePassed(request.request_kind()));
        fixture.report_and_take(id, end);
        assert_eq!((fixture.state(id), fixture.core.channel(id)), (after, Some(there)));
        fixture.no_event(here);
    }
}

#[test]
fn two_migrations_in_a_row_keep_the_order_and_each_is_reported() {
    let (mut fixture, one) = CoreFixture::on(Acks::Explicit);
    let (two, three) = (fixture.channel(Acks::Explicit), fixture.channel(Acks::OnDelivery));
    let id = fixture.in_state(one, State::Connected);
    fixture.report_status(id, ANY, 1);
    fixture.report_status(id, ANY, 2);
    let held = fixture.expect_event(one, id, cm(ANY));
    fixture.submit(id, to(two)).unwrap();
    fixture.refuses(id, to(three), RefuseReason::Busy(RequestKind::Migrate));
    fixture.acks(held);
    fixture.all_well();
    fixture.report_status(id, ANY, 3);
    // The second migration precedes the taking of the first one's end. That event is the core's own and owes no ack.
    fixture.makes(id, to(three), "migrate_id");
    fixture.no_event(two);
    fixture.report_status(id, ANY, 4);
    fixture.sees(three, id, EventKind::Migrated);
    for status in 2..5 {
        assert_eq!(fixture.sees(three, id, cm(ANY)).status, status);
    }
    // Several migrations in a row, the last back to the first channel.
    fixture.report_status(id, ANY, 5);
    for channel in [one, two, one] {
        fixture.does(id, to(channel));
    }
    fixture.report_status(id, ANY, 6);
    for status in 5..7 {
        assert_eq!(fixture.sees(one, id, cm(ANY)).status, status);
    }
}

#[test]
fn an_event_that_was_not_read_before_synchronous_mode_ends_no_later_request() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::RouteResolving);
    fixture.report(id, CmEvent::RouteResolved);
    fixture.does(id, TO_SYNC);
    let private = fixture.core.channel(id).unwrap();
    // librdmacm would take the old event for the answer to the connect, and stay one event behind for ever.
    fixture.does(id, connect());
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.report_status(id, CmEvent::Rejected, 28);
    assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ECONNREFUSED)));
    assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(CmEvent::Rejected));
    fixture.sees(private, id, cm(CmEvent::RouteResolved));
    fixture.no_event(private);
}

#[test]
fn an_address_that_was_not_read_before_synchronous_mode_has_given_the_id_its_device() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::AddrResolving);
    fixture.does(id, TO_SYNC);
    // The event was in the kernel when the id migrated. It is read from the new channel.
    fixture.report(id, CmEvent::AddrResolved);
    fixture.does(id, Request::AttachQp);
    fixture.does(id, Request::ResolveRoute);
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.report(id, CmEvent::RouteResolved);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
}

#[test]
fn an_operation_that_became_synchronous_ends_by_event_and_a_new_one_by_itself() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connecting);
    fixture.does(id, TO_SYNC);
    let private = fixture.core.channel(id).unwrap();
    fixture.report_and_take(id, CmEvent::Established);
    assert_eq!(fixture.core.sync_result(id), None, "it was not a request of synchronous mode");
    fixture.does(id, Request::Disconnect);
    fixture.report(id, CmEvent::Disconnected);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    fixture.no_event(private);
}
