//! Teardown: a disconnect that ends when memory may be used again.

use std::time::Duration;

use cmid_proto::{Acks, Admission, Call, CmEvent, Errno, EventKind, IdKey, Request, State, Verb, Why};

use crate::fixture::{LISTEN, OK, Stage, TO_SYNC, cm, to};

const SOON: Duration = Duration::from_millis(2);

/// The second disconnect, which nobody waits for.
fn answers(stage: &mut Stage, id: IdKey) {
    let (token, call) = stage.takes_call("disconnect");
    assert_eq!(call, Call::Disconnect { id });
    assert_eq!(stage.answers(token, OK), None);
}

#[test]
fn a_teardown_disconnects_answers_and_ends_with_the_time_wait() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Connected);
    let soon = stage.within(SOON);
    stage.asks_until(id, Request::Teardown, soon).unwrap();
    assert_eq!(stage.expect_call("disconnect", OK).unwrap().result, Ok(()));
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Closing, Some((soon, id))));
    stage.tells(id, CmEvent::Disconnected);
    answers(&mut stage, id);
    assert_eq!(stage.state(id), State::Closing, "packets may still be under way");
    stage.tells(id, CmEvent::TimewaitExit);
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Closed, None));
    stage.no_call();
    assert_eq!(stage.refuses(id, Request::Teardown, Why::IsOver).errno(), Errno::EINVAL);
    stage.ends(&[id], &[channel]);
}

#[test]
fn both_sides_at_once_get_their_time_wait_by_the_second_disconnect() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let sides = [stage.in_state(channel, State::Connected), stage.in_state(channel, State::Connected)];
    for id in sides {
        stage.does(id, Request::Teardown);
    }
    // Each takes the other's request for its answer: no time wait would follow.
    for id in sides {
        stage.tells(id, CmEvent::Disconnected);
        answers(&mut stage, id);
    }
    for id in sides {
        stage.tells(id, CmEvent::TimewaitExit);
        assert_eq!(stage.state(id), State::Closed);
    }
    stage.ends(&sides, &[channel]);
}

#[test]
fn the_event_of_a_crossing_disconnect_may_precede_the_outcome_of_ones_own() {
    for outcome in [OK, Err(Errno::ENXIO)] {
        for (ended, synchronous) in
            [(CmEvent::Disconnected, false), (CmEvent::Rejected, false), (CmEvent::Disconnected, true)]
        {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, State::Connected);
            if synchronous {
                stage.does(id, TO_SYNC);
            }
            let home = stage.core.home(id).unwrap();
            stage.asks(id, Request::Teardown).unwrap();
            let (token, _) = stage.takes_call("disconnect");
            stage.tells(id, ended);
            stage.no_call();
            // There is no way back to connected, whatever the call says.
            assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()));
            assert_eq!(stage.state(id), State::Closing);
            answers(&mut stage, id);
            stage.says(id, CmEvent::TimewaitExit);
            if synchronous {
                assert_eq!(stage.core.sync_result(id), Some(Ok(())));
            } else {
                stage.sees(home, id, cm(CmEvent::TimewaitExit));
            }
            stage.ends(&[id], &[channel]);
        }
    }
}

#[test]
fn a_teardown_goes_on_from_wherever_the_connection_ends() {
    for from in [State::Connected, State::Disconnecting, State::PeerClosed, State::TimeWait, State::Closing] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, from);
        let soon = stage.within(SOON);
        stage.asks_until(id, Request::Teardown, soon).unwrap();
        stage.expect_call("disconnect", OK);
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Closing, Some((soon, id))), "{from}");
        stage.tells(id, CmEvent::TimewaitExit);
        assert_eq!(stage.state(id), State::Closed);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_teardown_is_refused_where_there_is_no_connection() {
    let (stage, channel) = Stage::on(Acks::OnDelivery);
    for state in State::ALL {
        let why = match state {
            State::Connected | State::Disconnecting | State::Closing | State::PeerClosed | State::TimeWait => continue,
            State::Closed => Why::IsOver,
            State::Removed => Why::DeviceGone,
            State::Destroying => Why::WrongState,
            _ => Why::NotConnected,
        };
        let mut stage = stage.clone();
        let id = stage.in_state(channel, state);
        let errno = match why {
            Why::NotConnected => Errno::ENOTCONN,
            Why::DeviceGone => Errno::ENXIO,
            _ => Errno::EINVAL,
        };
        assert_eq!(stage.refuses(id, Request::Teardown, why).errno(), errno);
    }
    stage.ends(&[], &[channel]);
}

#[test]
fn a_teardown_ends_at_its_deadline_and_what_comes_later_is_late() {
    for (told, events) in [(false, &[][..]), (true, &[CmEvent::Disconnected][..])] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Connected);
        let soon = stage.within(SOON);
        stage.does_until(id, Request::Teardown, soon);
        for &kind in events {
            stage.tells(id, kind);
            answers(&mut stage, id);
        }
        stage.passes(SOON);
        let event = stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Teardown));
        assert_eq!((event.result(), stage.state(id)), (Err(Errno::ETIMEDOUT), State::Closed), "{told}");
        for kind in [CmEvent::Disconnected, CmEvent::TimewaitExit, CmEvent::Rejected] {
            assert_eq!(stage.says(id, kind), Admission::Late);
        }
        stage.no_call();
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_deadline_may_pass_while_either_disconnect_is_under_way() {
    for outcome in [OK, Err(Errno::ENXIO)] {
        for second in [false, true] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, State::Connected);
            let soon = stage.within(SOON);
            stage.asks_until(id, Request::Teardown, soon).unwrap();
            if second {
                stage.expect_call("disconnect", OK);
                stage.tells(id, CmEvent::Disconnected);
            }
            let (token, _) = stage.takes_call("disconnect");
            stage.passes(SOON);
            let ended = stage.answers(token, outcome);
            assert_eq!(ended.map(|ended| ended.result), (!second).then_some(Ok(())), "the event is its end");
            stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Teardown));
            assert_eq!(stage.state(id), State::Closed);
            stage.no_call();
            stage.ends(&[id], &[channel]);
        }
    }
}

#[test]
fn a_teardown_that_the_device_refuses_leaves_what_was_under_way() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connected);
    let (soon, later) = (stage.within(SOON), stage.within(SOON * 2));
    stage.asks_until(id, Request::Teardown, later).unwrap();
    let failure = stage.expect_call("disconnect", Err(Errno::EBADF)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state), ("teardown", State::Connected));
    assert_eq!(stage.core.poll_timeout(), None);
    stage.does_until(id, Request::Disconnect, soon);
    stage.asks_until(id, Request::Teardown, later).unwrap();
    assert!(stage.expect_call("disconnect", Err(Errno::EBADF)).unwrap().result.is_err());
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Disconnecting, Some((soon, id))));
    stage.passes(SOON);
    stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Disconnect));
    assert_eq!(stage.state(id), State::TimeWait);
    stage.ends(&[id], &[channel]);
}

#[test]
fn another_disconnect_leaves_the_teardown_its_deadline() {
    for outcome in [OK, Err(Errno::ENXIO)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Connected);
        let soon = stage.within(SOON);
        stage.does_until(id, Request::Teardown, soon);
        stage.asks(id, Request::Disconnect).unwrap();
        stage.expect_call("disconnect", outcome);
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Closing, Some((soon, id))));
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn the_second_disconnect_waits_until_the_id_has_moved() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Closing);
    stage.asks(id, to(there)).unwrap();
    let (token, _) = stage.takes_call("migrate_id");
    stage.says(id, CmEvent::Disconnected);
    stage.no_call();
    stage.answers(token, OK);
    answers(&mut stage, id);
    stage.sees(there, id, cm(CmEvent::Disconnected));
    stage.no_call();
    stage.ends(&[id], &[here, there]);
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
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = stage.in_state(here, State::Closing);
        stage.says(id, CmEvent::AddrChange);
        let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
        stage.asks_until(id, to(there), stage.within(SOON)).unwrap();
        stage.says(id, CmEvent::Disconnected);
        let (token, _) = stage.takes_call("disconnect");
        stage.refuses(id, Request::Disconnect, Why::Busy(Verb::Teardown));
        if then == Then::GivesUp {
            stage.passes(SOON);
        }
        stage.acks(held);
        stage.no_call();
        assert_eq!(stage.core.waits_for_acks(id, Verb::Migrate), then != Then::GivesUp);
        let mut channels = vec![here, there];
        match then {
            Then::HasNowhereToGo => {
                stage.core.close_channel(there).unwrap();
                stage.all_well();
                channels.pop();
            }
            Then::IsDestroyed => stage.asks(id, Request::Destroy).unwrap(),
            Then::Moves | Then::GivesUp => {}
        }
        assert_eq!(stage.answers(token, OK), None);
        match then {
            Then::Moves => {
                stage.expect_call("migrate_id", OK);
                stage.sees(there, id, EventKind::Migrated);
                stage.sees(there, id, cm(CmEvent::Disconnected));
            }
            Then::GivesUp | Then::HasNowhereToGo => {
                stage.sees(here, id, cm(CmEvent::Disconnected));
                assert_ne!(stage.sees(here, id, EventKind::Migrated).status, 0);
            }
            Then::IsDestroyed => {
                stage.expect_call("destroy_id", OK);
                stage.sees(here, id, EventKind::Destroyed);
            }
        }
        stage.no_call();
        stage.ends(&[id], &channels);
    }
}

#[test]
fn a_destroy_during_the_second_disconnect_follows_it() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Closing);
    stage.tells(id, CmEvent::Disconnected);
    let (token, _) = stage.takes_call("disconnect");
    stage.refuses(id, to(channel), Why::Busy(Verb::Teardown));
    stage.asks(id, Request::Destroy).unwrap();
    stage.no_call();
    assert_eq!(stage.answers(token, Err(Errno::ENXIO)), None);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    stage.sees(channel, id, EventKind::Destroyed);
    stage.ends(&[], &[channel]);
}

#[test]
fn in_synchronous_mode_it_ends_by_the_time_wait_its_deadline_or_the_removal() {
    for (end, result) in [
        (Some(CmEvent::TimewaitExit), Ok(())),
        (None, Err(Errno::ETIMEDOUT)),
        (Some(CmEvent::DeviceRemoval), Err(Errno::ENODEV)),
    ] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Connected);
        stage.does(id, TO_SYNC);
        let private = stage.core.home(id).unwrap();
        let soon = stage.within(SOON);
        stage.does_until(id, Request::Teardown, soon);
        stage.refuses(id, Request::Disconnect, Why::Busy(Verb::Teardown));
        stage.says(id, CmEvent::Disconnected);
        answers(&mut stage, id);
        assert_eq!(stage.core.sync_result(id), None, "DISCONNECTED is not the end");
        match end {
            Some(kind) => assert_eq!(stage.says(id, kind), Admission::Known),
            None => stage.passes(SOON),
        }
        assert_eq!(stage.core.sync_result(id), Some(result));
        assert_eq!(stage.core.sync_event(id).map(|event| event.kind), end.map(cm));
        stage.sees(private, id, cm(CmEvent::Disconnected));
        stage.no_event(private);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn it_goes_to_another_core_with_its_deadline() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let channel = one.channel(Acks::OnDelivery);
    let id = one.in_state(channel, State::Connected);
    one.does(id, TO_SYNC);
    let soon = one.within(SOON);
    one.asks_until(id, Request::Teardown, soon).unwrap();
    let refused = one.core.release(id).map(drop).unwrap_err();
    assert!(refused.to_string().ends_with("teardown is under way"), "{refused}");
    one.all_well();
    one.says(id, CmEvent::Disconnected);
    let refused = one.core.release(id).map(drop).unwrap_err();
    assert!(refused.to_string().ends_with("teardown is under way"), "the second disconnect: {refused}");
    one.all_well();
    let (released, _) = one.core.release(id).unwrap();
    one.ends(&[], &[channel]);
    let (key, home) = two.core.adopt(released).unwrap();
    two.sees(home, key, cm(CmEvent::Disconnected));
    two.passes(SOON);
    assert_eq!((two.core.sync_result(key), two.state(key)), (Some(Err(Errno::ETIMEDOUT)), State::Closed));
    two.ends(&[key], &[]);
}

#[test]
fn nothing_but_a_connection_is_torn_down() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Bound);
    stage.does(id, LISTEN);
    stage.refuses(id, Request::Teardown, Why::NotConnected);
    stage.ends(&[id], &[channel]);
}
