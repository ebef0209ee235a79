//! Migration in every state, with and without events under way.

use cmid_proto::{Acks, Admission, Call, CmEvent, Errno, EventKind, Request, State, Verb, Why};

use crate::fixture::{OK, RESOLVE, Stage, TO_SYNC, accept, cm, connect, raw, to};

/// An event that every living state but *removed* delivers and that changes none.
const ANY: CmEvent = CmEvent::Unknown(1000);

/// A listener moves without the device: `listeners.rs`.
fn moving_states() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|&state| !matches!(state, State::Destroying | State::Listening))
}

#[test]
fn every_state_migrates_with_its_undelivered_events_ahead_of_later_ones() {
    for state in moving_states() {
        for undelivered in [0, 1, 3] {
            let (mut stage, here) = Stage::on(Acks::OnDelivery);
            let there = stage.channel(Acks::OnDelivery);
            let id = stage.in_state(here, state);
            let bystander = stage.id(Some(here));
            for status in 0..undelivered {
                let known = state != State::Removed;
                stage.says_status(id, ANY, status);
                stage.says_status(bystander, ANY, status);
                assert_eq!(stage.core.counters().late, if known { 0 } else { status as u64 + 1 });
            }
            let from = stage.core.line(id).unwrap();
            assert_eq!(from != here, matches!(state, State::Requested | State::Asked), "{state}");
            stage.asks(id, to(there)).unwrap();
            let (token, call) = stage.takes_call("migrate_id");
            assert_eq!(call, Call::Migrate { id, from, to: there });
            assert!(stage.answers(token, OK).unwrap().result.is_ok());
            assert_eq!((stage.state(id), stage.core.home(id)), (state, Some(there)));
            stage.says_status(id, ANY, 100);
            if state != State::Removed {
                for status in (0..undelivered).chain([100]) {
                    assert_eq!(stage.sees(there, id, cm(ANY)).status, status, "{state}");
                }
            }
            stage.no_event(there);
            for status in 0..undelivered {
                assert_eq!(stage.sees(here, bystander, cm(ANY)).status, status);
            }
            stage.no_event(here);
        }
    }
}

#[test]
fn every_state_waits_for_the_acks_of_what_was_delivered() {
    for state in moving_states().filter(|&state| state != State::Removed) {
        for target_acks in [Acks::Explicit, Acks::OnDelivery] {
            let (mut stage, here) = Stage::on(Acks::Explicit);
            let there = stage.channel(target_acks);
            let id = stage.in_state(here, state);
            stage.says_status(id, ANY, 1);
            stage.says_status(id, ANY, 2);
            let held = stage.expect_event(here, id, cm(ANY));
            stage.asks(id, to(there)).unwrap();
            stage.no_call();
            stage.acks(held);
            stage.expect_call("migrate_id", OK);
            stage.sees(there, id, EventKind::Migrated);
            assert_eq!(stage.sees(there, id, cm(ANY)).status, 2, "{state}");
            assert_eq!(stage.state(id), state);
        }
    }
}

#[test]
fn every_state_survives_a_migration_that_fails() {
    for state in moving_states() {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let there = stage.channel(Acks::OnDelivery);
        let id = stage.in_state(here, state);
        let waits = stage.says(id, ANY) == Admission::Known;
        stage.asks(id, to(there)).unwrap();
        let failure = stage.expect_call("migrate_id", Err(Errno::ENXIO)).unwrap().result.unwrap_err();
        assert_eq!((failure.call, failure.state, failure.errno), ("migrate_id", state, Errno::ENXIO));
        assert_eq!((stage.state(id), stage.core.home(id)), (state, Some(here)));
        if waits {
            stage.sees(here, id, cm(ANY));
        }
        stage.core.close_channel(there).unwrap();
    }
}

#[test]
fn every_state_goes_to_synchronous_mode_and_back() {
    for state in moving_states() {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(here, state);
        let before = stage.core.channels();
        let waits = stage.says(id, ANY) == Admission::Known;
        stage.asks(id, TO_SYNC).unwrap();
        stage.expect_call("create_event_channel", OK);
        stage.expect_call("migrate_id", OK);
        let private = stage.core.home(id).unwrap();
        assert!(stage.core.is_sync(id) && stage.core.is_private(private));
        let refused = stage.asks(id, TO_SYNC).unwrap_err();
        let why = Why::AlreadySync;
        assert_eq!(refused, cmid_proto::Refused::Request { id, request: Verb::Migrate, state, why });
        stage.asks(id, to(here)).unwrap();
        stage.expect_call("migrate_id", OK);
        stage.expect_call("destroy_event_channel", OK);
        assert_eq!((stage.state(id), stage.core.is_sync(id)), (state, false));
        assert_eq!(stage.core.channels(), before);
        if waits {
            stage.sees(here, id, cm(ANY));
        }
        stage.no_event(here);
    }
}

#[test]
fn an_id_may_migrate_to_where_it_is_and_its_events_go_to_the_end() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (one, two) = (stage.in_state(channel, State::Bound), stage.in_state(channel, State::Bound));
    stage.says(one, ANY);
    stage.says(two, ANY);
    stage.asks(one, to(channel)).unwrap();
    assert!(stage.expect_call("migrate_id", OK).unwrap().result.is_ok());
    stage.sees(channel, two, cm(ANY));
    stage.sees(channel, one, cm(ANY));
    // An event that comes before the outcome proves nothing here.
    stage.asks(one, to(channel)).unwrap();
    stage.says(one, ANY);
    assert!(stage.expect_call("migrate_id", Err(Errno::EBADF)).unwrap().result.is_err());
    stage.sees(channel, one, cm(ANY));
    stage.ends(&[one, two], &[channel]);
}

#[test]
fn a_channel_that_is_closed_is_refused() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.core.close_channel(there).unwrap();
    for _ in 0..2 {
        let refused = stage.asks(id, to(there)).unwrap_err();
        assert_eq!(refused.errno(), Errno::EBADF);
        assert_eq!(refused.to_string(), format!("migrate_id on {id} while bound: there is no channel {there}"));
        stage.all_well();
    }
    stage.ends(&[id], &[here]);
}

#[test]
fn a_channel_is_in_use_while_an_id_is_on_its_way_to_it() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.asks(id, to(there)).unwrap();
    assert!(stage.core.close_channel(there).is_err());
    stage.all_well();
    stage.ends(&[id], &[here, there]);
}

#[test]
fn an_event_on_the_new_channel_tells_before_the_outcome_does() {
    for (outcome, acked) in [(OK, true), (Err(Errno::EFAULT), true), (OK, false)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::OnDelivery);
        let id = stage.in_state(here, State::Connected);
        stage.says_status(id, ANY, 1);
        let held = stage.expect_event(here, id, cm(ANY));
        if acked {
            stage.core.ack(held.receipt.unwrap()).unwrap();
            stage.asks(id, to(there)).unwrap();
        } else {
            stage.asks(id, to(there)).unwrap();
            stage.acks(held);
        }
        let (token, _) = stage.takes_call("migrate_id");
        stage.says_on(there, raw(id, ANY, 2));
        assert_eq!(stage.core.home(id), Some(there));
        let ended = stage.answers(token, outcome);
        if acked {
            assert!(ended.unwrap().result.is_ok());
        } else {
            assert_eq!(ended, None);
            stage.sees(there, id, EventKind::Migrated);
        }
        assert_eq!(stage.sees(there, id, cm(ANY)).status, 2);
        stage.ends(&[id], &[here, there]);
    }
}

#[test]
fn an_event_on_the_new_channel_tells_so_even_if_it_is_late() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Failed);
    stage.asks(id, to(there)).unwrap();
    let (token, _) = stage.takes_call("migrate_id");
    assert_eq!(stage.says_on(here, raw(id, CmEvent::Rejected, 0)), Admission::Late);
    assert_eq!(stage.core.home(id), Some(here), "nothing is said by one on the old channel");
    assert_eq!(stage.says_on(there, raw(id, CmEvent::Rejected, 0)), Admission::Late);
    assert_eq!((stage.core.home(id), stage.core.line(id)), (Some(there), Some(there)));
    assert!(stage.answers(token, Err(Errno::EFAULT)).unwrap().result.is_ok());
    assert_eq!((stage.core.home(id), stage.core.line(id)), (Some(there), Some(there)));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn the_new_channel_is_to_be_read_after_a_migration() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    assert_eq!(stage.core.poll_readable(), None);
    stage.does(id, to(there));
    assert_eq!(stage.core.poll_readable(), Some(there), "the kernel wakes no one");
    // An event that was read off the old channel just before arrives where the id is.
    stage.says_on(here, raw(id, ANY, 0));
    stage.sees(there, id, cm(ANY));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_private_channel_that_cannot_be_opened_leaves_the_id_where_it_is() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Connected);
    stage.asks(id, TO_SYNC).unwrap();
    let failure = stage.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("create_event_channel", Errno::EMFILE));
    stage.asks(id, TO_SYNC).unwrap();
    stage.expect_call("create_event_channel", OK);
    stage.expect_call("migrate_id", Err(Errno::ENXIO));
    stage.expect_call("destroy_event_channel", OK);
    assert_eq!((stage.core.home(id), stage.core.is_sync(id)), (Some(here), false));
    stage.does(id, Request::Disconnect);
    stage.ends(&[id], &[here]);
}

/// What leads into every state that waits for an event, and the event.
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
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = stage.in_state(here, from);
        let soon = stage.within(std::time::Duration::from_millis(2));
        stage.asks_until(id, request, soon).unwrap();
        if request.verb() == Verb::Accept {
            stage.expect_call("migrate_id", OK);
        }
        // Not while the device is at the operation's own call: one call at a time.
        let (token, _) = stage.core.poll_call().unwrap();
        assert_eq!(stage.refuses(id, to(there), Why::Busy(request.verb())).errno(), Errno::EBUSY);
        stage.answers(token, OK);
        stage.asks(id, to(there)).unwrap();
        stage.refuses(id, to(there), Why::Busy(Verb::Migrate));
        stage.expect_call("migrate_id", OK);
        assert_eq!(stage.core.poll_timeout(), Some((soon, id)));
        stage.tells(id, end);
        assert_eq!((stage.state(id), stage.core.home(id)), (after, Some(there)));
        stage.no_event(here);
    }
}

#[test]
fn two_migrations_in_a_row_keep_the_order_and_tell_of_each() {
    let (mut stage, one) = Stage::on(Acks::Explicit);
    let (two, three) = (stage.channel(Acks::Explicit), stage.channel(Acks::OnDelivery));
    let id = stage.in_state(one, State::Connected);
    stage.says_status(id, ANY, 1);
    stage.says_status(id, ANY, 2);
    let held = stage.expect_event(one, id, cm(ANY));
    stage.asks(id, to(two)).unwrap();
    stage.refuses(id, to(three), Why::Busy(Verb::Migrate));
    stage.acks(held);
    stage.all_well();
    stage.says_status(id, ANY, 3);
    // The second one before the end of the first was taken: it is the core's own event and owes nothing.
    stage.asks(id, to(three)).unwrap();
    stage.expect_call("migrate_id", OK);
    stage.no_event(two);
    stage.says_status(id, ANY, 4);
    stage.sees(three, id, EventKind::Migrated);
    for status in 2..5 {
        assert_eq!(stage.sees(three, id, cm(ANY)).status, status);
    }
    // There and back at once.
    stage.says_status(id, ANY, 5);
    for channel in [one, two, one] {
        stage.does(id, to(channel));
    }
    stage.says_status(id, ANY, 6);
    for status in 5..7 {
        assert_eq!(stage.sees(one, id, cm(ANY)).status, status);
    }
    stage.ends(&[id], &[one, two, three]);
}

#[test]
fn an_event_that_was_not_read_before_synchronous_mode_ends_no_later_request() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::RouteResolving);
    stage.says(id, CmEvent::RouteResolved);
    stage.does(id, TO_SYNC);
    let private = stage.core.home(id).unwrap();
    // librdmacm takes the old event for the answer of each request, one behind for ever.
    stage.does(id, connect());
    assert_eq!(stage.core.sync_result(id), None);
    stage.says_status(id, CmEvent::Rejected, 28);
    assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ECONNREFUSED)));
    assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(CmEvent::Rejected));
    stage.sees(private, id, cm(CmEvent::RouteResolved));
    stage.no_event(private);
    stage.ends(&[id], &[here]);
}

#[test]
fn an_address_that_was_not_read_before_synchronous_mode_has_given_the_id_its_device() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::AddrResolving);
    stage.does(id, TO_SYNC);
    // It was in the kernel when the id moved, and is read off the new channel.
    stage.says(id, CmEvent::AddrResolved);
    stage.does(id, Request::AttachQp);
    stage.does(id, Request::ResolveRoute);
    assert_eq!(stage.core.sync_result(id), None);
    stage.says(id, CmEvent::RouteResolved);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    stage.ends(&[id], &[here]);
}

#[test]
fn a_deadline_that_passes_on_the_way_out_of_synchronous_mode_is_told_where_the_id_ends_up() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = stage.in_state(channel, State::RouteResolved);
        stage.does(id, TO_SYNC);
        let private = stage.core.home(id).unwrap();
        let span = std::time::Duration::from_millis(2);
        let soon = stage.within(span);
        stage.does_until(id, connect(), soon);
        stage.asks(id, to(channel)).unwrap();
        let (token, _) = stage.takes_call("migrate_id");
        stage.passes(span);
        assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
        stage.answers(token, outcome);
        if outcome.is_ok() {
            stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Connect));
        } else {
            assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (Some(Err(Errno::ETIMEDOUT)), None));
            stage.no_event(private);
        }
        assert_eq!(stage.state(id), State::Failed);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn an_operation_that_became_synchronous_ends_by_event_and_a_new_one_by_itself() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(here, State::Connecting);
    stage.does(id, TO_SYNC);
    let private = stage.core.home(id).unwrap();
    stage.tells(id, CmEvent::Established);
    assert_eq!(stage.core.sync_result(id), None, "it was not a request of synchronous mode");
    stage.does(id, Request::Disconnect);
    stage.says(id, CmEvent::Disconnected);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    stage.no_event(private);
    stage.ends(&[id], &[here]);
}
