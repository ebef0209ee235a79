//! A device that goes away, in every state and in the middle of everything.

use std::time::Duration;

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, CmOption, Errno, EventKind, IdKey, Request, State, Verb, table,
};

use crate::fixture::{LISTEN, OK, RESOLVE, Stage, TO_SYNC, accept, cm, connect, raw, to};

const SOON: Duration = Duration::from_millis(2);
const GONE: CmEvent = CmEvent::DeviceRemoval;

fn living() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|state| !matches!(state, State::Removed | State::Destroying))
}

/// Where an id is from that is about to be in the middle of an operation, and what it asks for.
fn operations() -> [(State, Request<'static>); 6] {
    [
        (State::Bound, RESOLVE),
        (State::AddrResolved, Request::ResolveRoute),
        (State::RouteResolved, connect()),
        (State::Requested, accept()),
        (State::Connected, Request::Disconnect),
        (State::Connected, Request::Teardown),
    ]
}

/// Nothing but a destroy is left to do.
fn is_over(stage: &mut Stage, id: IdKey, on: ChannelKey) {
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Removed, None));
    for kind in [CmEvent::Established, CmEvent::Disconnected, CmEvent::TimewaitExit, GONE] {
        assert_eq!(stage.says(id, kind), Admission::Late);
    }
    stage.no_event(on);
    stage.does(id, Request::Destroy);
    assert_eq!(stage.core.state(id), None);
}

#[test]
fn every_state_ends_removed_also_while_a_call_is_under_way() {
    for state in living() {
        for outcome in [OK, Err(Errno::ENXIO)] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, state);
            stage.asks(id, Request::SetOption { option: CmOption::Tos(1) }).unwrap();
            let (token, _) = stage.takes_call("set_option");
            stage.says(id, GONE);
            assert_eq!(stage.state(id), State::Removed);
            let ended = stage.answers(token, outcome).unwrap();
            assert_eq!(ended.result.map_err(|failure| failure.state), outcome.map_err(|_| State::Removed), "{state}");
            stage.sees(channel, id, cm(GONE));
            is_over(&mut stage, id, channel);
        }
    }
}

#[test]
fn every_operation_ends_by_the_removal_before_and_after_its_call_has_returned() {
    for (from, request) in operations() {
        for outcome in [None, Some(OK), Some(Err(Errno::ENXIO))] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, from);
            let soon = stage.within(SOON);
            stage.asks_until(id, request, soon).unwrap();
            let (token, _) = stage.core.poll_call().unwrap();
            if outcome.is_none() {
                stage.answers(token, OK);
            }
            stage.says(id, GONE);
            if let Some(outcome) = outcome {
                assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()), "the event is its end");
            }
            stage.sees(channel, id, cm(GONE));
            stage.passes(SOON);
            is_over(&mut stage, id, channel);
        }
    }
}

#[test]
fn every_synchronous_wait_ends_with_enodev() {
    for (from, request) in operations() {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, from);
        stage.does(id, TO_SYNC);
        let private = stage.core.home(id).unwrap();
        let soon = stage.within(SOON);
        stage.does_until(id, request, soon);
        stage.says(id, GONE);
        assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ENODEV)), "{}", request.verb());
        assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(GONE));
        is_over(&mut stage, id, private);
    }
}

#[test]
fn a_migration_in_the_middle_is_told_what_the_device_says() {
    for state in living().filter(|&state| state != State::Listening) {
        for outcome in [OK, Err(Errno::ENXIO)] {
            let (mut stage, here) = Stage::on(Acks::OnDelivery);
            let there = stage.channel(Acks::OnDelivery);
            let id = stage.in_state(here, state);
            stage.asks(id, to(there)).unwrap();
            let (token, _) = stage.takes_call("migrate_id");
            stage.says_on(here, raw(id, GONE, 0));
            assert_eq!(stage.answers(token, outcome).unwrap().result.is_ok(), outcome.is_ok());
            let home = if outcome.is_ok() { there } else { here };
            stage.sees(home, id, cm(GONE));
            is_over(&mut stage, id, home);
        }
    }
}

#[test]
fn a_migration_that_waits_for_acks_is_made_and_may_fail() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.says(id, GONE);
    stage.acks(held);
    stage.expect_call("migrate_id", Err(Errno::ENXIO));
    stage.sees(here, id, cm(GONE));
    assert_eq!(stage.sees(here, id, EventKind::Migrated).result(), Err(Errno::ENXIO));
    is_over(&mut stage, id, here);
    stage.ends(&[], &[here, there]);
}

#[test]
fn a_listen_in_the_middle_fails_or_has_made_a_listener_of_a_removed_device() {
    for made in 0..3 {
        for outcome in [OK, Err(Errno::ENXIO)] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, State::Bound);
            stage.asks(id, LISTEN).unwrap();
            let calls = ["create_event_channel", "migrate_id", "listen"];
            for call in &calls[..made] {
                stage.expect_call(call, OK);
            }
            let (token, _) = stage.takes_call(calls[made]);
            stage.says(id, GONE);
            let mut ended = stage.answers(token, outcome);
            while ended.is_none() {
                let (token, _) = stage.core.poll_call().unwrap();
                ended = stage.answers(token, Err(Errno::ENXIO));
            }
            assert_eq!(ended.unwrap().result.is_ok(), made == 2 && outcome.is_ok());
            stage.all_well();
            stage.sees(channel, id, cm(GONE));
            is_over(&mut stage, id, channel);
            stage.ends(&[], &[channel]);
        }
    }
}

#[test]
fn a_listener_that_is_removed_still_has_the_requests_that_came_before() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let listener = stage.in_state(channel, State::Listening);
    let child = stage.says_request(listener);
    stage.says(listener, GONE);
    stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    stage.sees(channel, listener, cm(GONE));
    stage.asks(child, accept()).unwrap();
    stage.expect_call("migrate_id", OK);
    stage.expect_call("accept", Err(Errno::ENXIO));
    assert_eq!(stage.state(child), State::Failed);
    // One that comes later is of a listener that is none any more.
    let late = stage.core.wants_event(channel).unwrap();
    let request = cmid_proto::RawEvent { listener: Some(listener), ..raw(late, CmEvent::ConnectRequest, 0) };
    assert_eq!(stage.says_on(channel, request), Admission::Late);
    stage.all_well();
    assert_eq!(stage.core.state(late), None);
    stage.ends(&[child, listener], &[channel]);
}

#[test]
fn an_address_that_was_not_read_before_the_removal_is_an_error_and_then_the_removal() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::AddrResolving);
    // The library's query for the device fails, and it turns the event over.
    stage.says_status(id, CmEvent::AddrError, -1);
    stage.says(id, GONE);
    assert_eq!(stage.sees(channel, id, cm(CmEvent::AddrError)).result(), Err(Errno::EPERM));
    stage.sees(channel, id, cm(GONE));
    is_over(&mut stage, id, channel);
}

#[test]
fn a_destroy_that_waits_or_is_under_way_takes_no_notice() {
    for waits in [true, false] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = stage.in_state(channel, State::Connected);
        stage.says(id, CmEvent::AddrChange);
        let held = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
        stage.asks(id, Request::Destroy).unwrap();
        if waits {
            assert_eq!(stage.says(id, GONE), Admission::Late);
            stage.acks(held);
            stage.expect_call("destroy_id", OK);
        } else {
            stage.acks(held);
            let (token, _) = stage.takes_call("destroy_id");
            assert_eq!(stage.says(id, GONE), Admission::Late);
            stage.answers(token, OK);
        }
        stage.sees(channel, id, EventKind::Destroyed);
        stage.ends(&[], &[channel]);
    }
}

#[test]
fn every_deadline_there_is_ends_with_its_state() {
    for state in living().filter(|&state| table::operation(state).is_some()) {
        let deadline = table::tell(state, table::Fact::Deadline);
        assert!(
            matches!(deadline, table::Tell::Go(next) if next != state && table::operation(next).is_none()),
            "{state}"
        );
    }
    assert_eq!(table::operation(State::Closing), Some(Verb::Teardown));
}
